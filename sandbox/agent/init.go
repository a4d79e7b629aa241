package agent

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Where an agent finds what cells need. The runtime puts it there.
const (
	// InitPath is the init of cells, see [Init].
	InitPath = "/.toolfleet/init"
	// MountProcPath is a program that mounts /proc, see [MountProc].
	MountProcPath = "/.toolfleet/mount-proc"
	// EmptyDir is an empty directory, to cover others with.
	EmptyDir = "/.toolfleet/empty"
)

// Init is the init of a cell, as a program: pid 1 of the cell's pid namespace,
// which has to be there so that there is a namespace to put the tool into and
// to kill. It ignores SIGCHLD, which makes the kernel bury the orphans that
// every init inherits, and then waits for the end. It is eight instructions in
// the machine's own language because a cell starts it every time: an init in
// Go would take a hundred times as long to start, and any copy of the agent
// would hold the agent's memory.
func Init() []byte {
	// The code finds its struct sigaction right behind itself: SIG_IGN, then
	// no flags, no restorer, no mask.
	action := make([]byte, 32)
	action[0] = 1
	return program64(initCode, action)
}

// MountProc is a program that mounts /proc on /proc and ends with 0, or with
// another number when it could not. Where a /proc is of the pid namespace of
// whoever mounts it, somebody inside has to.
func MountProc() []byte {
	return program64(mountProcCode, []byte("proc\x00\x00\x00\x00/proc\x00\x00\x00"))
}

// program64 is a static program of code with data right behind it, for this
// machine: a header, one segment, nothing else.
func program64(code, data []byte) []byte {
	const (
		base    = 0x400000
		headers = 64 + 56 // the file's and the one segment's
		align   = 0x1000
	)
	image := append(bytes.Clone(code), data...)
	size := uint64(headers + len(image))

	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident:   [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:    uint16(elf.ET_EXEC),
			Machine: uint16(initMachine),
			Version: uint32(elf.EV_CURRENT),
			Entry:   base + headers,
			Phoff:   64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		},
		elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
			Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: align,
		},
		image,
	} {
		_ = binary.Write(&b, binary.LittleEndian, part) // a buffer takes all
	}
	return b.Bytes()
}
