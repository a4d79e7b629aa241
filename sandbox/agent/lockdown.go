package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// lockedSecurebits make user 0 an ordinary user for ever: an exec as user 0
// gains nothing, capabilities do not survive a change of user, and none can be
// made ambient.
const lockedSecurebits = 1<<0 | 1<<1 | // NOROOT and its lock
	1<<5 | // lock of KEEP_CAPS, which is off
	1<<6 | 1<<7 // NO_CAP_AMBIENT_RAISE and its lock

// dropPrivileges takes everything from the calling thread, and from it alone,
// that an ordinary user does not have, and gives it a user.
//
// An agent that is not user 0, as sandbox/local may have one, holds no
// capability to drop and cannot change its user. Its bounding set stays, which
// no_new_privs makes harmless.
func dropPrivileges(uid, gid int) error {
	if os.Geteuid() == 0 {
		if err := dropBoundingSet(); err != nil {
			return err
		}
		// gVisor knows none of these bits. There, user 0 loses its capabilities
		// at the exec for want of a bounding set, which is empty by now.
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, lockedSecurebits, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("lock securebits: %w", err)
		}
		if err := setUser(uid, gid); err != nil {
			return err
		}
	} else if uid != os.Getuid() || gid != os.Getgid() {
		return fmt.Errorf("run as %d:%d: the agent is not root", uid, gid)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// dropBoundingSet drops every capability the kernel knows, also those younger
// than this program. Most are not there, and to drop one makes Linux copy the
// thread's credentials all the same; so it is asked first. An answer that is no
// clear no changes nothing: only the drop's own ends it.
func dropBoundingSet() error {
	for c := uintptr(0); ; c++ {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err == nil && has == 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
}

// sandboxIDs is how many user and group ids a sandbox has.
const sandboxIDs = 65536

// setUser changes the calling thread's user and groups. The functions of the
// same names in the standard library change all threads.
func setUser(uid, gid int) error {
	// A runtime with a kernel of its own may know ids that the sandbox's
	// user namespace on the host does not.
	if os.Getpid() == 1 && gid >= sandboxIDs {
		return userError("group", gid, unix.EINVAL)
	}
	if os.Getpid() == 1 && uid >= sandboxIDs {
		return userError("user", uid, unix.EINVAL)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("drop groups: %w", errno)
	}
	g, u := uintptr(gid), uintptr(uid)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, g, g, g); errno != 0 {
		return userError("group", gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, u, u, u); errno != 0 {
		return userError("user", uid, errno)
	}
	return nil
}

// userError tells an id that the sandbox's user namespace does not have, which
// the tool's author asked for, from other failures.
func userError(what string, id int, errno unix.Errno) error {
	if errno == unix.EINVAL {
		return &execError{fmt.Sprintf("there is no %s %d in this sandbox; use a number below 65536", what, id)}
	}
	return fmt.Errorf("become %s %d: %w", what, id, errno)
}

// oomScore is the agent's own score, as a file that stays open for all calls,
// and what the score was at first.
var oomScore = sync.OnceValues(func() (*ownScore, error) {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 16)
	n, err := unix.Pread(fd, buf, 0)
	return &ownScore{fd, buf[:max(n, 0)]}, err
})

type ownScore struct {
	fd    int
	first []byte
}

func (s *ownScore) set(value []byte) error {
	_, err := unix.Pwrite(s.fd, value, 0)
	return err
}

// withOOMScore calls f, which forks the tool, so that the tool is the kernel's
// first choice when memory runs out, and the agent lives to tell. The value
// belongs to the whole process, so it is set for the fork and then set back:
// raising is always allowed, and so is going back to where one was.
func withOOMScore(adj int, f func() (*launched, error)) (*launched, error) {
	score, err := oomScore()
	if err != nil {
		return nil, fmt.Errorf("read the score for the out-of-memory killer: %w", err)
	}
	if err := score.set(strconv.AppendInt(nil, int64(adj), 10)); err != nil {
		return nil, fmt.Errorf("set the score for the out-of-memory killer: %w", err)
	}
	defer func() { _ = score.set(score.first) }()
	return f()
}

// setRlimits sets the limits, none above what the agent itself has. They belong
// to the whole process, so the agent lives with them too; it serves one call
// and needs little. The standard library's Setrlimit is used because it also
// makes ForkExec forget the file limit that Go raised at start.
func setRlimits(limits []wire.Rlimit) error {
	for _, l := range limits {
		var have syscall.Rlimit
		if err := syscall.Getrlimit(l.Resource, &have); err != nil {
			return fmt.Errorf("read resource limit %d: %w", l.Resource, err)
		}
		want := syscall.Rlimit{Cur: min(l.Soft, l.Hard, have.Max), Max: min(l.Hard, have.Max)}
		// To lower a limit is never forbidden: gVisor says so of limits that it
		// does not keep, on things that it does not share with the host.
		if err := syscall.Setrlimit(l.Resource, &want); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("set resource limit %d: %w", l.Resource, err)
		}
	}
	return nil
}

const (
	sizeOfSockFilter = 8
	maxSockFilters   = 4096 // the kernel's BPF_MAXINSNS
)

// loadSeccomp loads a compiled filter into the calling thread. It is compiled
// on the host, so that the agent needs neither libseccomp nor a profile.
// Precondition: no_new_privs is set.
func loadSeccomp(code []byte) error {
	if len(code) == 0 {
		return nil
	}
	n := len(code) / sizeOfSockFilter
	if len(code)%sizeOfSockFilter != 0 || n > maxSockFilters {
		return fmt.Errorf("load seccomp filter: %d bytes are no filter", len(code))
	}
	filters := make([]unix.SockFilter, n)
	for i := range filters {
		b := code[i*sizeOfSockFilter:]
		filters[i] = unix.SockFilter{Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:])}
	}
	prog := unix.SockFprog{Len: uint16(n), Filter: &filters[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("load seccomp filter: %w", errno)
	}
	return nil
}
