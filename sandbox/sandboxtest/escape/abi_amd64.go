package main

import "golang.org/x/sys/unix"

// forgotten are calls that no program has used for decades, if any ever did.
var forgotten = []uintptr{
	unix.SYS_NFSSERVCTL, unix.SYS__SYSCTL, unix.SYS_USELIB, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS,
	unix.SYS_QUERY_MODULE, unix.SYS_AFS_SYSCALL, unix.SYS_TUXCALL, unix.SYS_SECURITY, unix.SYS_VSERVER, unix.SYS_USTAT,
}

// int80 makes a call of the 32-bit table with one argument.
func int80(nr, arg uint32) int64

// i386Getpid asks for getpid, number 20 there; in the 64-bit table 20 is writev.
var i386Getpid = func() int64 { return int64(int32(int80(20, 0))) }

// x32Getpid asks for the same number as the 64-bit table has, with a bit set.
var x32Getpid = func() int64 {
	pid, _, _ := unix.RawSyscall(1<<30|unix.SYS_GETPID, 0, 0, 0)
	return int64(pid)
}

// ports are the calls that open the machine's I/O ports.
func ports() outcome {
	_, level := call(unix.SYS_IOPL, 3)
	_, perm := call(unix.SYS_IOPERM, 0x70, 1, 1)
	return first(judge(level, "may use every port"), judge(perm, "may use a port"))
}
