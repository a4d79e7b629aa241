package main

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A filter can only be tightened: of all filters of a thread the strictest
// answer counts. These attempts see whether that holds here.

// refused is a call that the sandbox's filter answers with EPERM whatever the
// kernel would say: unshare of nothing.
func refused() error {
	_, err := call(unix.SYS_UNSHARE, 0)
	return err
}

func unloadSeccomp(bait) outcome {
	if mode := status("Seccomp"); mode != "2" {
		return open("there is no filter; the mode is %s", mode)
	}
	_, err := call(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, 0, 0)
	if err == nil || status("Seccomp") != "2" {
		return open("took it off")
	}
	return denied(err)
}

// load adds a filter of one instruction to this thread.
func load(answer uint32, flags uintptr) (uintptr, error) {
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: answer}}
	return loadProgram(filter, flags)
}

func loadProgram(filter []unix.SockFilter, flags uintptr) (uintptr, error) {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, err := call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	return fd, err
}

const (
	answerAllow  = 0x7fff0000 // SECCOMP_RET_ALLOW
	answerNotify = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
	newListener  = 1 << 3     // SECCOMP_FILTER_FLAG_NEW_LISTENER
)

func overrideSeccomp(bait) outcome {
	if err := refused(); err == nil {
		return open("unshare is not refused at all")
	}
	if _, err := load(answerAllow, 0); err != nil {
		return denied(err)
	}
	return judge(refused(), "unshare was let through")
}

// notifySeccomp asks to be told of unshare, which the other filter refuses
// before anybody is told. If it were not so, the call would wait for an answer
// that this process could give; a thread that waits is not refused.
func notifySeccomp(bait) outcome {
	const nr = 0 // offset of the number in struct seccomp_data
	_, err := loadProgram([]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: unix.SYS_UNSHARE},
		{Code: unix.BPF_RET | unix.BPF_K, K: answerNotify},
		{Code: unix.BPF_RET | unix.BPF_K, K: answerAllow},
	}, newListener)
	if err != nil {
		return judge(err, "")
	}
	err = refused()
	if errors.Is(err, unix.EPERM) {
		return denied(err)
	}
	return open("the other filter was not asked: %v", err)
}
