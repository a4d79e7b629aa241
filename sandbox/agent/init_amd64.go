package agent

import "debug/elf"

const initMachine = elf.EM_X86_64

// initCode is rt_sigaction(SIGCHLD, action, nil, 8) and then ppoll(nil, 0, nil,
// nil, 0) for ever.
var initCode = []byte{
	0xb8, 13, 0, 0, 0, // mov  eax, SYS_rt_sigaction
	0xbf, 17, 0, 0, 0, // mov  edi, SIGCHLD
	0x48, 0x8d, 0x35, 31, 0, 0, 0, // lea  rsi, [rip+31]: behind the code
	0x31, 0xd2, // xor  edx, edx
	0x41, 0xba, 8, 0, 0, 0, // mov  r10d, 8
	0x0f, 0x05, // syscall
	// again:
	0x31, 0xff, // xor  edi, edi
	0x31, 0xf6, // xor  esi, esi
	0x31, 0xd2, // xor  edx, edx
	0x45, 0x31, 0xd2, // xor  r10d, r10d
	0xb8, 0x0f, 0x01, 0, 0, // mov  eax, SYS_ppoll
	0x0f, 0x05, // syscall
	0xeb, 0xee, // jmp  again
	0x90, 0x90, 0x90, // nop: the action is aligned to eight
}

// mountProcCode is exit(-mount("proc", "/proc", "proc", nosuid|nodev|noexec,
// nil)): the kernel returns 0 or a negative error.
var mountProcCode = []byte{
	0x48, 0x8d, 0x3d, 41, 0, 0, 0, // lea  rdi, [rip+41]: behind the code, "proc"
	0x48, 0x8d, 0x77, 8, // lea  rsi, [rdi+8]: "/proc"
	0x48, 0x89, 0xfa, // mov  rdx, rdi
	0x41, 0xba, 14, 0, 0, 0, // mov  r10d, MS_NOSUID|MS_NODEV|MS_NOEXEC
	0x45, 0x31, 0xc0, // xor  r8d, r8d
	0xb8, 165, 0, 0, 0, // mov  eax, SYS_mount
	0x0f, 0x05, // syscall
	0x89, 0xc7, // mov  edi, eax
	0xf7, 0xdf, // neg  edi
	0xb8, 231, 0, 0, 0, // mov  eax, SYS_exit_group
	0x0f, 0x05, // syscall
	0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, // nop
}
