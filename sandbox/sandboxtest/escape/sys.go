package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

var sysAttempts = []attempt{
	{name: "sysfs-write", opens: "the tool steers devices and the kernel through /sys", try: func(bait) outcome { return anyWritable("/sys") }},
	{name: "uevent-helper", opens: "the tool names a program that the kernel runs as root", try: writing("/sys/kernel/uevent_helper")},
	{name: "power-state", opens: "the tool puts the machine to sleep", try: writing("/sys/power/state", "/sys/power/disk", "/sys/power/mem_sleep")},
	{name: "cgroup-limits", opens: "the tool raises its own limits", try: func(bait) outcome { return cgroupFiles("memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max") }},
	{name: "cgroup-leave", opens: "the tool moves to another cgroup", try: func(bait) outcome { return cgroupFiles("cgroup.procs", "tasks") }},
	{name: "cgroup-release-agent", opens: "the host runs a program of the tool's as root", try: func(bait) outcome { return cgroupFiles("release_agent", "notify_on_release") }},
	{name: "cgroup-new", opens: "the tool makes cgroups", try: newCgroup},
	{name: "host-cgroup-path", opens: "the tool sees where in the host's tree it is", try: cgroupPath},
	{name: "debugfs", opens: "the tool reads the kernel through debugfs", try: listing("/sys/kernel/debug")},
	{name: "tracefs", opens: "the tool traces the kernel", try: listing("/sys/kernel/tracing", "/sys/kernel/debug/tracing")},
	{name: "bpffs", opens: "the tool finds programs that others pinned", try: listing("/sys/fs/bpf")},
	{name: "securityfs", opens: "the tool reads the host's security policy", try: listing("/sys/kernel/security")},
	{name: "efi-variables", opens: "the tool reads or changes what the machine boots", try: listing("/sys/firmware", "/sys/firmware/efi/efivars")},
	{name: "power-meter", opens: "the tool reads secrets off the power consumption", try: listing("/sys/devices/virtual/powercap", "/sys/class/powercap/intel-rapl:0")},
	{name: "host-serial-numbers", opens: "the tool recognises the machine", try: serialNumbers},
}

// cgroupFiles looks for files of a name, in every tree of cgroups.
func cgroupFiles(names ...string) outcome {
	outcomes := []outcome{denied(errors.New("there is no such file"))}
	for _, name := range names {
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/", "/sys/fs/cgroup/*/*/"} {
			paths, _ := filepath.Glob(pattern + name)
			for _, path := range paths {
				outcomes = append(outcomes, writable(path))
			}
		}
	}
	return first(outcomes...)
}

func newCgroup(bait) outcome {
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*")
	return each(append(dirs, "/sys/fs/cgroup"), func(dir string) outcome {
		err := os.Mkdir(filepath.Join(dir, "escape"), 0o700)
		if err == nil {
			_ = os.Remove(filepath.Join(dir, "escape"))
		}
		return judge(err, "made a cgroup in "+dir)
	})
}

// cgroupPath: with a cgroup namespace a process sees itself at the root.
func cgroupPath(bait) outcome {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return denied(err)
	}
	for line := range strings.Lines(string(text)) {
		if path := line[strings.LastIndex(line, ":")+1:]; strings.TrimSpace(path) != "/" {
			return open("the path is %s", path)
		}
	}
	return denied(errors.New("the path is /"))
}

// listing is open when one of the directories has something in it.
func listing(dirs ...string) func(bait) outcome {
	return func(bait) outcome {
		return each(dirs, orAbsent(func(dir string) outcome {
			entries, err := os.ReadDir(dir)
			if err == nil && len(entries) == 0 {
				err = fmt.Errorf("%s is empty", dir)
			}
			return judge(err, "listed "+dir)
		}))
	}
}

func serialNumbers(bait) outcome {
	return each([]string{
		"/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/board_serial", "/sys/class/dmi/id/chassis_serial",
		"/sys/class/dmi/id/board_asset_tag", "/sys/class/dmi/id/chassis_asset_tag",
		"/sys/block/*/device/serial", "/sys/block/*/device/wwid", "/sys/block/*/wwid", "/sys/block/*/serial", "/sys/block/*/device/vpd_pg80", "/sys/class/nvme/*/serial",
	}, anyReadable)
}
