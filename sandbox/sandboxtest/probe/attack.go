package main

import (
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attack tries what a tool must not be able to do and prints what it could.
func attack() int {
	agent := os.Getppid()
	if agent == 0 { // beyond the pid namespace of a cell
		agent = 1
	}
	tries := []struct {
		what string
		do   func() error
	}{
		{"become root", func() error { return unix.Setresuid(0, 0, 0) }},
		{"make a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"make a mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
		{"mount", func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") }},
		{"load a BPF program", bpf},
		{"set the host name", func() error { return unix.Sethostname([]byte("x")) }},
		{"trace the agent", func() error { return unix.PtraceAttach(agent) }},
		{"read the agent's memory", func() error {
			_, err := os.ReadFile("/proc/" + strconv.Itoa(agent) + "/environ")
			return err
		}},
		{"read the agent's files", func() error {
			_, err := os.ReadDir("/proc/" + strconv.Itoa(agent) + "/fd")
			return err
		}},
		{"hide from the out-of-memory killer", func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) }},
		{"have a capability", func() error { return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_KILL, 0, 0) }},
	}
	for _, try := range tries {
		if try.do() == nil {
			fmt.Println(try.what)
		}
	}
	// The agent must live through this, or no exit is told.
	for sig := range unix.Signal(65) {
		_ = unix.Kill(agent, sig)
	}
	return 0
}

// bpf asks for a map, the harmless beginning of every BPF program.
func bpf() error {
	attr := [4]uint32{2, 4, 4, 1} // an array of one
	_, _, errno := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), uintptr(len(attr)*4))
	if errno != 0 {
		return errno
	}
	return nil
}
