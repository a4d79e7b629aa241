package main

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Parts of the kernel that most exploits begin in, or that belong to whoever
// administrates the machine.
var kernelAttempts = []attempt{
	{name: "bpf-map", opens: "the tool makes a map, the beginning of every BPF program", try: func(bait) outcome {
		attr := [16]uint32{2, 4, 4, 1} // an array of one
		return pointerCall(unix.SYS_BPF, "a map", 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	}},
	{name: "bpf-program", opens: "the tool loads a program into the kernel", try: bpfProgram},
	{name: "perf-event-open", opens: "the tool measures the machine and its neighbours", try: perfEvent},
	{name: "userfaultfd", opens: "the tool stops the kernel in the middle of a copy", try: func(bait) outcome {
		return each([]uintptr{0, 1}, func(flags uintptr) outcome { // 1: for faults of user mode only
			return pointerCall(unix.SYS_USERFAULTFD, "a userfaultfd", flags)
		})
	}},
	{name: "io-uring", opens: "the tool makes calls that no seccomp filter sees", try: func(bait) outcome {
		var params [120]byte
		return pointerCall(unix.SYS_IO_URING_SETUP, "a ring", 4, uintptr(unsafe.Pointer(&params)))
	}},
	{name: "add-key", opens: "the tool fills the key space of a user", try: func(bait) outcome {
		_, err := unix.AddKey("user", "toolfleet", []byte("x"), unix.KEY_SPEC_SESSION_KEYRING)
		return judge(err, "added a key")
	}},
	{name: "request-key", opens: "the tool makes the kernel run its key helper as root", try: func(bait) outcome {
		_, err := unix.RequestKey("user", "toolfleet", "x", unix.KEY_SPEC_SESSION_KEYRING)
		return judge(err, "requested a key")
	}},
	{name: "keyctl", opens: "the tool reads or joins keyrings", try: func(bait) outcome {
		_, join := unix.KeyctlJoinSessionKeyring("")
		_, id := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, false)
		return first(judge(join, "joined a keyring"), judge(id, "found a keyring"))
	}},
	{name: "kexec-load", opens: "the tool boots another kernel", try: func(bait) outcome {
		_, err := call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0)
		return judge(err, "unloaded the crash kernel")
	}},
	{name: "kexec-file-load", opens: "the tool boots another kernel", try: func(bait) outcome {
		return judge(unix.KexecFileLoad(-1, -1, "", 4), "loaded a kernel")
	}},
	{name: "init-module", opens: "the tool loads code into the kernel", try: func(bait) outcome {
		return judge(unix.InitModule([]byte("\x7fELF"), ""), "loaded a module")
	}},
	{name: "finit-module", opens: "the tool loads code into the kernel from a file", try: func(bait) outcome {
		f, err := os.Open(self)
		if err != nil {
			return denied(err)
		}
		defer f.Close()
		return judge(unix.FinitModule(int(f.Fd()), "", 0), "loaded a module")
	}},
	{name: "delete-module", opens: "the tool unloads the kernel's modules", try: func(bait) outcome {
		return judge(unix.DeleteModule("toolfleet_none", unix.O_NONBLOCK), "unloaded a module")
	}},
	{name: "reboot", opens: "the tool stops the machine", try: func(bait) outcome {
		// What Ctrl-Alt-Del does: needs the same right, and stops nothing.
		return judge(unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF), "changed what Ctrl-Alt-Del does")
	}},
	{name: "swapon", opens: "the tool has swap beyond its memory", try: swapon},
	{name: "acct", opens: "the tool writes down what everybody runs", try: func(bait) outcome {
		_ = os.WriteFile("/tmp/acct", nil, 0o600)
		return judge(unix.Acct("/tmp/acct"), "turned accounting on")
	}},
	{name: "quotactl", opens: "the tool sets quotas", try: func(bait) outcome {
		path := []byte("/dev/sda1\x00")
		_, err := call(unix.SYS_QUOTACTL, 0x80000200, uintptr(unsafe.Pointer(&path[0])), 0, 0) // Q_QUOTAON
		return judge(err, "turned quotas on")
	}},
	{name: "kernel-log", opens: "the tool reads the kernel's messages", try: func(bait) outcome {
		var b [256]byte
		_, err := unix.Klogctl(3, b[:])
		return judge(err, "read the log")
	}},
	{name: "fanotify", opens: "the tool watches the files of others", try: func(bait) outcome {
		fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, 0)
		return descriptor(uintptr(fd), err, "a watch group")
	}},
	{name: "lookup-dcookie", opens: "the tool learns names of the host's files", try: func(bait) outcome {
		var b [256]byte
		_, err := call(unix.SYS_LOOKUP_DCOOKIE, 0, uintptr(unsafe.Pointer(&b)), uintptr(len(b)))
		return judge(err, "looked one up")
	}},
	{name: "vhangup", opens: "the tool hangs up a terminal", try: func(bait) outcome {
		_, err := call(unix.SYS_VHANGUP)
		return judge(err, "hung up")
	}},
	{name: "old-calls", opens: "a forgotten call does something", try: oldCalls},
	{name: "huge-pages", opens: "the tool takes the huge pages that the host reserved, past its memory limit", try: hugePages},
	{name: "move-pages", opens: "the tool moves the memory of others between nodes", try: func(bait) outcome {
		_, err := call(unix.SYS_MIGRATE_PAGES, 1, 0, 0, 0)
		_, move := call(unix.SYS_MOVE_PAGES, 1, 0, 0, 0, 0, 2)
		return first(judge(err, "migrated the agent's pages"), judge(move, "moved the agent's pages"))
	}},
}

// pointerCall judges a call that makes a file descriptor. The compiler keeps
// what a uintptr(unsafe.Pointer()) in its own argument list points to alive.
//
//go:uintptrescapes
func pointerCall(nr uintptr, what string, args ...uintptr) outcome {
	fd, err := call(nr, args...)
	return descriptor(fd, err, what)
}

func bpfProgram(bait) outcome {
	code := [2]uint64{0xb7, 0x95} // r0 = 0; exit
	license := [4]byte{'G', 'P', 'L'}
	attr := struct {
		kind, count uint32
		code        *uint64
		license     *byte
		rest        [96]byte
	}{1, 2, &code[0], &license[0], [96]byte{}}
	return pointerCall(unix.SYS_BPF, "a program", 5, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
}

func perfEvent(bait) outcome {
	return each([]unix.PerfEventAttr{
		{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK},
		{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv},
		{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CACHE_MISSES, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv},
	}, func(attr unix.PerfEventAttr) outcome {
		attr.Size = uint32(unsafe.Sizeof(attr))
		fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
		return descriptor(uintptr(fd), err, "a counter")
	})
}

// swapon offers a file with a swap header.
func swapon(bait) outcome {
	const path, size = "/tmp/swap", 1 << 20
	content := make([]byte, size)
	content[1024] = 1            // version
	content[1028] = size>>12 - 1 // last page
	copy(content[4086:], "SWAPSPACE2")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return open("cannot tell: %v", err)
	}
	defer os.Remove(path) //nolint:errcheck // goes with the sandbox
	name := []byte(path + "\x00")
	_, on := call(unix.SYS_SWAPON, uintptr(unsafe.Pointer(&name[0])), 0)
	if on == nil {
		_, _ = call(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(&name[0])))
	}
	return judge(on, "swaps to a file")
}

// oldCalls are those that no program has used for decades.
func oldCalls(bait) outcome {
	if len(forgotten) == 0 {
		return absent("this architecture has none")
	}
	return each(forgotten, func(nr uintptr) outcome {
		_, err := call(nr, 0, 0, 0, 0, 0, 0)
		return judge(err, "a forgotten call answered")
	})
}

// hugePages come from a pool of the machine, and no limit on memory counts them.
func hugePages(bait) outcome {
	const size = 2 << 20
	_, mmap := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
	_, memfd := unix.MemfdCreate("huge", unix.MFD_HUGETLB)
	_, shm := unix.SysvShmGet(unix.IPC_PRIVATE, size, 0o600|0o4000) // SHM_HUGETLB
	return each([]error{mmap, memfd, shm}, func(err error) outcome {
		if err == nil || errors.Is(err, unix.ENOMEM) {
			// The pool's being empty is the host's doing, not the sandbox's.
			return open("the kernel was asked for one: %v", err)
		}
		return judge(err, "")
	})
}
