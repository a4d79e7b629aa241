package containerd

import (
	"log/slog"

	profiles "github.com/containerd/containerd/v2/contrib/apparmor"
	"github.com/containerd/containerd/v2/pkg/apparmor"
)

const apparmorProfile = "toolfleet-default"

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
