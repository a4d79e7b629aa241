package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// socketMemory bounds what the buffers of a sandbox's TCP and UDP sockets take
// where no other limit does, in bytes.
const socketMemory = 16 << 20

// boundSockets sets that bound. cgroup v2 counts such buffers as memory. v1
// counts them for themselves, and only when they have a limit: without one a tool
// of 256 MiB fills connections to itself with gigabytes, until the machine has no
// memory left for sockets. The OCI specification has a field for it, which runc
// no longer heeds; so it is written here, before the agent runs.
func (c cgroup) boundSockets() error {
	if cgroupMode() == "v2" {
		return nil
	}
	file := filepath.Join(cgroupRoot, "memory", c.path, "memory.kmem.tcp.limit_in_bytes")
	err := os.WriteFile(file, []byte(strconv.Itoa(socketMemory)), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without the count
		return fmt.Errorf("containerd: bound the memory of sockets: %w", err)
	}
	return nil
}
