package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var privilegeAttempts = []attempt{
	{name: "become-root", opens: "the tool is user 0", try: becomeRoot},
	{name: "join-groups", opens: "the tool is in other groups", try: func(bait) outcome {
		groups := []uint32{0, 5, 6}
		_, err := call(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])))
		return judge(err, "joined groups")
	}},
	{name: "become-other-user", opens: "the tool acts as the user of something else in its sandbox", try: func(bait) outcome {
		_, err := call(unix.SYS_SETRESUID, 1000, 1000, 1000)
		return judge(err, "became user 1000")
	}},
	{name: "raise-capabilities", opens: "the tool has a capability", try: raiseCapabilities},
	{name: "ambient-capability", opens: "the tool passes a capability on", try: func(bait) outcome {
		return judge(unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_RAW, 0, 0), "raised one")
	}},
	{name: "inherited-capabilities", opens: "the tool was started with a capability", try: func(bait) outcome {
		if c := capabilities(); c != noCapabilities {
			return open("the sets are %s", c)
		}
		return denied(errors.New("all five sets are empty"))
	}},
	{name: "clear-securebits", opens: "user 0 counts again", try: func(bait) outcome {
		return judge(unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0), "cleared them")
	}},
	{name: "clear-no-new-privs", opens: "an exec may gain privileges", try: clearNoNewPrivs},
	{name: "setuid-file", opens: "a setuid file gives another user", try: setuidFile},
	{name: "setuid-root-file", opens: "the tool makes a file of user 0 setuid", try: setuidRootFile},
	{name: "setuid-image-file", opens: "a file of the image gives another user", try: setuidImageFile},
	{name: "file-capabilities", opens: "a file gives capabilities", try: fileCapabilities},
	{name: "unload-seccomp", opens: "the tool takes its filter off", try: unloadSeccomp},
	{name: "override-seccomp", opens: "a filter of the tool's own allows what the other denies", try: overrideSeccomp},
	{name: "answer-own-seccomp", opens: "the tool lets its own refused calls pass by user notification", try: notifySeccomp},
	{name: "change-apparmor-profile", opens: "the tool leaves the profile that confines it", try: changeProfile},
	{name: "raise-file-limit", opens: "the tool opens more files than it may", try: raising(unix.RLIMIT_NOFILE)},
	{name: "raise-core-limit", opens: "the tool's memory is dumped into a program of the host", try: raising(unix.RLIMIT_CORE)},
	{name: "raise-signal-limit", opens: "the tool queues signals for all of the host's root", try: raising(unix.RLIMIT_SIGPENDING)},
	{name: "raise-priority", opens: "the tool goes before the host's processes", try: raisePriority},
	{name: "real-time-scheduling", opens: "the tool keeps a processor for itself", try: realTime},
	{name: "lower-oom-score", opens: "something else dies when the tool eats all memory", try: lowerOOMScore},
}

const noCapabilities = "0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000"

// status is one line of /proc/self/status.
func status(name string) string {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			return strings.TrimSpace(value)
		}
	}
	return "none"
}

func capabilities() string {
	var sets []string
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		sets = append(sets, status(name))
	}
	return strings.Join(sets, " ")
}

func becomeRoot(bait) outcome {
	if unix.Getuid() == 0 {
		return open("the tool runs as user 0")
	}
	_, user := call(unix.SYS_SETRESUID, 0, 0, 0)
	_, group := call(unix.SYS_SETRESGID, 0, 0, 0)
	_, files := call(unix.SYS_SETFSUID, 0)
	if fsuid, _ := call(unix.SYS_SETFSUID, ^uintptr(0)); files == nil && fsuid == 0 {
		return open("got file system user 0")
	}
	return first(judge(user, "became user 0"), judge(group, "became group 0"))
}

func raiseCapabilities(bait) outcome {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var outcomes []outcome
	for c := range 41 {
		var data [2]unix.CapUserData
		bit := uint32(1) << (c % 32)
		data[c/32] = unix.CapUserData{Effective: bit, Permitted: bit, Inheritable: bit}
		err := unix.Capset(&header, &data[0])
		if err == nil && capabilities() == noCapabilities {
			err = errNoEffect // gVisor takes some away without a word
		}
		outcomes = append(outcomes, judge(err, "raised capability "+strconv.Itoa(c)))
	}
	return first(outcomes...)
}

func clearNoNewPrivs(bait) outcome {
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if got := status("NoNewPrivs"); got != "1" {
		return open("no_new_privs is %s", got)
	}
	if err == nil {
		err = errNoEffect
	}
	return denied(err)
}

// writablePlaces are the directories in which a tool may make files.
var writablePlaces = []string{"/tmp", "/workspace", "/home/tool", "/dev/shm"}

// copySelf copies this program to dir.
func copySelf(dir string) (string, error) {
	in, err := os.Open(self)
	if err != nil {
		return "", err
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(dir, "copy"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	return out.Name(), errors.Join(err, out.Close())
}

// gains runs a program and is open when it is somebody else there, or can more.
func gains(path string) outcome {
	want := fmt.Sprintln(unix.Geteuid(), unix.Getegid(), capabilities())
	got, err := exec.Command(path, "ids").Output() //nolint:noctx // the attempt has a time limit as a whole
	if err != nil {
		return denied(err)
	}
	if string(got) != want {
		return open("%s ran as %s", path, got)
	}
	return denied(errNoEffect)
}

func setuidFile(bait) outcome {
	return each(writablePlaces, func(dir string) outcome {
		path, err := copySelf(dir)
		if err != nil {
			return denied(err)
		}
		defer os.Remove(path) //nolint:errcheck // goes with the sandbox
		if err := os.Chmod(path, 0o755|os.ModeSetuid|os.ModeSetgid); err != nil {
			return denied(err)
		}
		return gains(path)
	})
}

func setuidRootFile(bait) outcome {
	return each(writablePlaces, func(dir string) outcome {
		path, err := copySelf(dir)
		if err != nil {
			return denied(err)
		}
		defer os.Remove(path) //nolint:errcheck // goes with the sandbox
		return judge(errors.Join(os.Chown(path, 0, 0), os.Chmod(path, 0o755|os.ModeSetuid)), "made "+path+" setuid and root's")
	})
}

// setuidImageFile runs every setuid or setgid file that there is.
func setuidImageFile(bait) outcome {
	result := denied(errors.New("no file has the bit"))
	_ = filepath.WalkDir("/", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // what cannot be read cannot be run
		case path == "/proc" || path == "/sys" || path == "/dev":
			return filepath.SkipDir
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			result = first(result, gains(path))
		}
		return nil
	})
	return result
}

// fileCapabilities gives a copy of this program CAP_SYS_ADMIN and what else
// there is: revision 2, effective.
func fileCapabilities(bait) outcome {
	caps := []byte{1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	return each(writablePlaces, func(dir string) outcome {
		path, err := copySelf(dir)
		if err != nil {
			return denied(err)
		}
		defer os.Remove(path) //nolint:errcheck // goes with the sandbox
		if err := unix.Setxattr(path, "security.capability", caps, 0); err != nil {
			return denied(err)
		}
		return gains(path)
	})
}

// changeProfile asks to be unconfined, now and after the next exec.
func changeProfile(bait) outcome {
	if _, err := os.ReadFile("/proc/self/attr/current"); err != nil {
		return absent("no security module has profiles: %v", err)
	}
	before := readAll("/proc/thread-self/attr/current")
	return each([]string{"current", "exec", "apparmor/current", "apparmor/exec"}, func(name string) outcome {
		verb := map[bool]string{true: "exec", false: "changeprofile"}[strings.HasSuffix(name, "exec")]
		err := os.WriteFile("/proc/thread-self/attr/"+name, []byte(verb+" unconfined"), 0)
		if after := readAll("/proc/thread-self/attr/current"); after != before {
			return open("the profile is %s", after)
		}
		return judge(err, "changed the profile for the next exec")
	})
}

func raising(resource int) func(bait) outcome {
	return func(bait) outcome {
		var have syscall.Rlimit
		if err := syscall.Getrlimit(resource, &have); err != nil {
			return denied(err)
		}
		if have.Max == unix.RLIM_INFINITY {
			return open("there is no limit")
		}
		more := syscall.Rlimit{Cur: have.Max + 1, Max: have.Max + 1}
		return judge(syscall.Setrlimit(resource, &more), "raised the limit")
	}
}

func raisePriority(bait) outcome {
	if gVisor() {
		return absent("gVisor keeps the numbers and schedules by none")
	}
	_, io := call(unix.SYS_IOPRIO_SET, 1, 0, 1<<13) // the real-time class
	return first(judge(unix.Setpriority(unix.PRIO_PROCESS, 0, -20), "is first"), judge(io, "is first at the disk"))
}

func realTime(bait) outcome {
	param := int32(1)
	return each([]uintptr{1, 2}, func(policy uintptr) outcome {
		_, err := call(unix.SYS_SCHED_SETSCHEDULER, 0, policy, uintptr(unsafe.Pointer(&param)))
		return judge(err, "runs in real time")
	})
}

func lowerOOMScore(bait) outcome {
	if gVisor() {
		return absent("gVisor keeps the number, and the host ends all of a sandbox or nothing")
	}
	const file = "/proc/self/oom_score_adj"
	err := os.WriteFile(file, []byte("-1000"), 0)
	if got, _ := os.ReadFile(file); strings.TrimSpace(string(got)) != "1000" {
		return open("the score is %s", got)
	}
	if err == nil {
		err = errNoEffect
	}
	return denied(err)
}
