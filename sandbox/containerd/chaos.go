//go:build chaos

package containerd

import (
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A worker built with the tag "chaos" shows every sandbox one directory of the
// host, at /dev/ledger, where the tools of the fault harness note that they
// began and that they came to their end. What a call says of itself is no
// witness of how often it ran, and a sandbox has no other way out. No released
// program has this.
func init() {
	if dir := os.Getenv("TOOLFLEET_CHAOS_LEDGER"); dir != "" {
		baseMounts = append(baseMounts, specs.Mount{
			Destination: "/dev/ledger", Type: "bind", Source: dir,
			Options: []string{"bind", "rw", "nosuid", "noexec", "nodev"},
		})
	}
}
