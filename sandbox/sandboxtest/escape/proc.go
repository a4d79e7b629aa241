package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

var procAttempts = []attempt{
	{name: "proc-kcore", opens: "the tool reads the kernel's memory", try: reading("/proc/kcore")},
	{name: "proc-keys", opens: "the tool sees the keys of others", try: reading("/proc/keys")},
	{name: "proc-timers", opens: "the tool sees what others wait for", try: reading("/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/latency_stats")},
	{name: "proc-interrupts", opens: "the tool sees when others type and send", try: reading("/proc/interrupts")},
	{name: "proc-page-flags", opens: "the tool sees the machine's pages", try: reading("/proc/kpageflags", "/proc/kpagecount", "/proc/kpagecgroup")},
	{name: "proc-kernel-internals", opens: "the tool sees how the kernel's memory is used", try: reading("/proc/vmallocinfo", "/proc/slabinfo", "/proc/pagetypeinfo", "/proc/scsi/scsi", "/proc/acpi/wakeup", "/proc/asound/version")},
	{name: "physical-addresses", opens: "the tool learns where its pages are (pagemap)", try: physicalAddresses},
	{name: "kernel-addresses", opens: "the tool learns where the kernel is", try: kernelAddresses},
	{name: "sysrq-trigger", opens: "the tool crashes or reboots the machine", try: writing("/proc/sysrq-trigger")},
	{name: "core-pattern", opens: "the tool names a program that the host runs as root", try: writing("/proc/sys/kernel/core_pattern")},
	{name: "modprobe-path", opens: "the tool names a program that the kernel runs as root", try: writing("/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/poweroff_cmd")},
	{name: "proc-sys-kernel", opens: "the tool sets what holds for the whole machine", try: writing("/proc/sys/kernel/panic", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/randomize_va_space",
		"/proc/sys/kernel/kptr_restrict", "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/ns_last_pid")},
	{name: "proc-sys-vm", opens: "the tool sets the machine's memory", try: writing("/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/vm/mmap_min_addr")},
	{name: "proc-sys-fs", opens: "the tool sets the machine's file systems", try: writing("/proc/sys/fs/file-max", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/protected_symlinks", "/proc/sys/fs/suid_dumpable")},
	{name: "proc-sys-net", opens: "the tool sets its network", try: writing("/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ping_group_range", "/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/net/core/somaxconn")},
	{name: "proc-sys-user", opens: "the tool raises the limits that keep it from the host's", try: writing("/proc/sys/user/max_user_namespaces", "/proc/sys/user/max_inotify_instances", "/proc/sys/user/max_inotify_watches")},
	{name: "proc-sys-any", opens: "the tool writes to any file of /proc/sys", try: func(bait) outcome { return anyWritable("/proc/sys") }},
	{name: "proc-any", opens: "the tool writes to any file of /proc that is not a process's", try: func(bait) outcome { return anyWritable("/proc") }},
	{name: "proc-create", opens: "the tool makes files in /proc", try: func(bait) outcome {
		return first(creatable("/proc/written"), creatable("/proc/sys/written"), creatable("/proc/self/written"))
	}},
}

// reading is open when one of the files has something to read.
func reading(paths ...string) func(bait) outcome {
	return func(bait) outcome { return each(paths, orAbsent(readable)) }
}

// writing is open when one of the files opens for writing.
func writing(paths ...string) func(bait) outcome {
	return func(bait) outcome { return each(paths, orAbsent(writable)) }
}

// orAbsent takes a file of /proc that is not there for one that the kernel does
// not have: nothing but the kernel puts files there. In /sys a file may as well
// be hidden, which denies it.
func orAbsent(try func(string) outcome) func(string) outcome {
	return func(path string) outcome {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(path, "/proc/") {
			return absent("there is no %s", path)
		}
		return try(path)
	}
}

// anyWritable looks for files that open for writing, but not those of processes:
// what is a process's own it may write, and what is not has its own attempts.
func anyWritable(root string) outcome {
	var found []string
	seen := 0
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // what cannot be listed is not found
		case d.IsDir() && isProcess(path):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		seen++
		if o := writable(path); o.word == "open" && !isNull(path) {
			found = append(found, path)
		}
		return nil
	})
	if len(found) > 0 {
		return open("%d files, among them %v", len(found), found[:min(len(found), 8)])
	}
	return denied(fmt.Errorf("not one of %d files", seen))
}

// isNull tells a mask, which is /dev/null, from the file below it.
func isNull(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

func isProcess(path string) bool {
	name := strings.TrimPrefix(path, "/proc/")
	return path != name && name != "" && name[0] >= '0' && name[0] <= '9'
}

// physicalAddresses reads pagemap, which shows zeroes to who may not know.
func physicalAddresses(bait) outcome {
	f, err := os.Open("/proc/self/pagemap")
	if errors.Is(err, fs.ErrNotExist) {
		return absent("%v", err)
	}
	if err != nil {
		return denied(err)
	}
	defer f.Close()
	const textStart, pageSize, frameMask = 0x400000, 4096, 1<<55 - 1
	var entry [8]byte
	for page := range int64(256) {
		if _, err := f.ReadAt(entry[:], (textStart/pageSize+page)*8); err != nil {
			return denied(err)
		}
		if frame := binary.NativeEndian.Uint64(entry[:]) & frameMask; frame != 0 {
			return open("a page is in frame %#x", frame)
		}
	}
	return denied(errors.New("every frame is 0"))
}

// kernelAddresses looks where the kernel is known to tell its addresses.
func kernelAddresses(bait) outcome {
	return first(
		addressIn("/proc/kallsyms", 0), addressIn("/proc/modules", -1), addressIn("/proc/iomem", 0),
		orAbsent(readable)("/sys/kernel/vmcoreinfo"), orAbsent(readable)("/proc/self/stack"),
		anyReadable("/sys/module/*/sections/.text"), anyReadable("/sys/kernel/slab/*/alloc_calls"), orAbsent(readable)("/sys/kernel/notes"),
	)
}

// addressIn is open when a line's field, counted from the end when negative,
// has a digit that is not zero.
func addressIn(path string, field int) outcome {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return absent("%v", err)
	}
	if err != nil {
		return denied(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		at := field
		if at < 0 {
			at += len(fields)
		}
		if at < 0 || at >= len(fields) {
			continue
		}
		address := strings.TrimPrefix(strings.Trim(fields[at], "()"), "0x")
		if strings.Trim(address, "0-") != "" && len(address) >= 8 {
			return open("%s tells %s", path, fields[at])
		}
	}
	return denied(fmt.Errorf("%s has no addresses", path))
}

func anyReadable(pattern string) outcome {
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		return denied(fmt.Errorf("there is no %s", pattern))
	}
	return each(paths, func(path string) outcome {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return denied(err)
		}
		_ = unix.Close(fd)
		return readable(path)
	})
}
