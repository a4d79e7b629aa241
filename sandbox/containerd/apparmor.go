package containerd

import (
	"log/slog"

	profiles "github.com/containerd/containerd/v2/contrib/apparmor"
	"github.com/containerd/containerd/v2/pkg/apparmor"
)

const apparmorProfile = "toolfleet-default"

// A container of cells runs without the profile, which forbids every mount: its
// agent mounts what a cell has. Its tools have no capability and a filter that
// knows no mount, so what they lose is a second lock on the same door.
const cellAppArmor = ""

// loadAppArmor loads containerd's default profile where the host has AppArmor,
// and returns its name. A host that has the module but not the parser goes
// without, as it would with Docker: the other layers stand by themselves.
func loadAppArmor(log *slog.Logger) string {
	if !apparmor.HostSupports() {
		return ""
	}
	if err := profiles.LoadDefaultProfile(apparmorProfile); err != nil {
		log.Warn("sandboxes run without AppArmor: its profile cannot be loaded", "error", err)
		return ""
	}
	return apparmorProfile
}
