package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// namespace is one kind, with its name in /proc and its flag.
type namespace struct {
	name string
	flag uintptr
}

var (
	userNS   = namespace{"user", unix.CLONE_NEWUSER}
	mountNS  = namespace{"mnt", unix.CLONE_NEWNS}
	pidNS    = namespace{"pid", unix.CLONE_NEWPID}
	netNS    = namespace{"net", unix.CLONE_NEWNET}
	ipcNS    = namespace{"ipc", unix.CLONE_NEWIPC}
	utsNS    = namespace{"uts", unix.CLONE_NEWUTS}
	cgroupNS = namespace{"cgroup", unix.CLONE_NEWCGROUP}
	timeNS   = namespace{"time", unix.CLONE_NEWTIME}
)

// In a namespace of its own a tool has every capability over it, and a hundred
// times the kernel's code to attack.
var namespaceAttempts = []attempt{
	{name: "unshare-user", opens: "the tool makes a user namespace", try: unsharing(userNS)},
	{name: "unshare-mount", opens: "the tool makes a mount namespace", try: unsharing(mountNS)},
	{name: "unshare-pid", opens: "the tool makes a pid namespace", try: unsharing(pidNS)},
	{name: "unshare-net", opens: "the tool makes a network namespace", try: unsharing(netNS)},
	{name: "unshare-ipc", opens: "the tool makes an ipc namespace", try: unsharing(ipcNS)},
	{name: "unshare-uts", opens: "the tool makes a uts namespace", try: unsharing(utsNS)},
	{name: "unshare-cgroup", opens: "the tool makes a cgroup namespace", try: unsharing(cgroupNS)},
	{name: "unshare-time", opens: "the tool makes a time namespace", try: unsharing(timeNS)},
	{name: "clone-user", opens: "the tool makes a user namespace by clone", try: cloning(userNS)},
	{name: "clone-mount", opens: "the tool makes a mount namespace by clone", try: cloning(mountNS)},
	{name: "clone-pid", opens: "the tool makes a pid namespace by clone", try: cloning(pidNS)},
	{name: "clone-net", opens: "the tool makes a network namespace by clone", try: cloning(netNS)},
	{name: "clone-ipc", opens: "the tool makes an ipc namespace by clone", try: cloning(ipcNS)},
	{name: "clone-uts", opens: "the tool makes a uts namespace by clone", try: cloning(utsNS)},
	{name: "clone-cgroup", opens: "the tool makes a cgroup namespace by clone", try: cloning(cgroupNS)},
	{name: "clone-user-and-mount", opens: "the tool becomes root of namespaces of its own", try: cloning(userNS, mountNS)},
	{name: "clone-user-and-net", opens: "the tool administrates a network of its own", try: cloning(userNS, netNS)},
	{name: "clone3-user", opens: "the tool makes a user namespace by clone3, whose flags no filter sees", try: clone3},
	{name: "setns-agent", opens: "the tool joins the agent's namespaces by their files", try: setnsAgent},
	{name: "setns-pidfd", opens: "the tool joins the agent's namespaces by its pidfd", try: setnsPidfd},
	{name: "setns-other-processes", opens: "the tool joins a namespace that is not its own", try: setnsOthers},
	{name: "write-uid-map", opens: "the tool maps itself to another user", try: writeUIDMap},
}

// unsharing forks, and unshares in the child: a process with threads, such as
// a Go program, may not make a user namespace, and would be refused for that.
func unsharing(ns namespace) func(bait) outcome {
	return func(bait) outcome { return inNamespace(&syscall.SysProcAttr{Unshareflags: ns.flag}, ns) }
}

func cloning(all ...namespace) func(bait) outcome {
	return func(bait) outcome {
		attr := &syscall.SysProcAttr{}
		for _, ns := range all {
			attr.Cloneflags |= ns.flag
		}
		return inNamespace(attr, all[len(all)-1])
	}
}

// inNamespace starts a process that tells which namespace it is in.
func inNamespace(attr *syscall.SysProcAttr, ns namespace) outcome {
	ours, err := os.Readlink("/proc/self/ns/" + ns.name)
	if err != nil {
		return absent("%v", err)
	}
	cmd := exec.Command(self, "namespace", ns.name) //nolint:noctx // the attempt has a time limit as a whole
	cmd.SysProcAttr = attr
	theirs, err := cmd.Output()
	switch {
	case err != nil:
		return judge(err, "")
	case strings.TrimSpace(string(theirs)) == ours:
		return denied(errNoEffect)
	}
	return open("a process ran in %s", strings.TrimSpace(string(theirs)))
}

// inner does what an attempt wants done in a process that it started.
func inner(args []string) int {
	switch args[0] {
	case "namespace":
		// Of the children, where it differs: that is what unshare changes for
		// pid and time.
		link, err := os.Readlink("/proc/self/ns/" + args[1] + "_for_children")
		if err != nil {
			link, err = os.Readlink("/proc/self/ns/" + args[1])
		}
		if err != nil {
			link = "a namespace without a /proc"
		}
		fmt.Println(link)
	case "ids":
		fmt.Println(unix.Geteuid(), unix.Getegid(), capabilities())
	case "wait":
		wait()
	default:
		return 2
	}
	return 0
}

// clone3 forks by the raw call. The child does nothing but exit: its copy of
// the Go runtime has one thread.
func clone3(bait) outcome {
	args := [11]uint64{0: unix.CLONE_NEWUSER, 4: uint64(unix.SIGCHLD)}
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if pid == 0 && errno == 0 {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	if errno != 0 {
		// ENOSYS is the filter's answer, with which programs fall back to clone.
		return denied(errno)
	}
	_, _ = unix.Wait4(int(pid), nil, 0, nil)
	return open("made a user namespace")
}

func setnsAgent(bait) outcome {
	return each([]namespace{userNS, mountNS, pidNS, netNS, ipcNS, utsNS, cgroupNS}, func(ns namespace) outcome {
		return joinNamespace(agent+"/ns/"+ns.name, ns)
	})
}

func joinNamespace(path string, ns namespace) outcome {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return denied(err)
	}
	defer unix.Close(fd) //nolint:errcheck // the process ends anyway
	return judge(unix.Setns(fd, int(ns.flag)), "joined "+path)
}

func setnsPidfd(bait) outcome {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return judge(err, "")
	}
	return judge(unix.Setns(fd, unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWNET), "joined the agent's namespaces")
}

// setnsOthers looks at every process there is for a namespace of the host's.
func setnsOthers(bait) outcome {
	var found []outcome
	for _, pid := range pids() {
		for _, ns := range []namespace{userNS, mountNS, pidNS, netNS} {
			path := "/proc/" + pid + "/ns/" + ns.name
			theirs, err := os.Readlink(path)
			ours, _ := os.Readlink("/proc/self/ns/" + ns.name)
			switch {
			case err != nil:
				found = append(found, denied(err))
			case theirs != ours:
				found = append(found, joinNamespace(path, ns))
			}
		}
	}
	found = append(found, denied(fmt.Errorf("%d processes share our namespaces", len(pids()))))
	return first(found...)
}

func writeUIDMap(bait) outcome {
	return each([]string{"uid_map", "gid_map"}, func(name string) outcome {
		before, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			return denied(err)
		}
		if err := os.WriteFile("/proc/self/"+name, []byte("0 0 1\n"), 0); err != nil {
			return denied(err)
		}
		if after, err := os.ReadFile("/proc/self/" + name); err == nil && string(after) == string(before) {
			return denied(errNoEffect)
		}
		return open("wrote %s", name)
	})
}
