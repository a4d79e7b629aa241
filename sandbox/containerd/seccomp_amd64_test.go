package containerd_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// What a seccomp filter answers.
const (
	retAllow = 0x7fff0000
	retErrno = 0x00050000
)

// filterVM runs a compiled filter without a kernel. The filter loads words in
// the host's byte order and the machine in the network's, so each word of the
// data is given in the latter.
type filterVM struct{ vm *bpf.VM }

func newFilterVM(t *testing.T, code []byte) filterVM {
	t.Helper()
	if len(code) == 0 || len(code)%8 != 0 || len(code)/8 > 4096 {
		t.Fatalf("%d bytes are no filter", len(code))
	}
	var program []bpf.Instruction
	for ; len(code) > 0; code = code[8:] {
		program = append(program, bpf.RawInstruction{
			Op: binary.NativeEndian.Uint16(code), Jt: code[2], Jf: code[3], K: binary.NativeEndian.Uint32(code[4:]),
		}.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return filterVM{vm}
}

// ask returns what the filter says to a system call.
func (f filterVM) ask(t *testing.T, arch, nr uint32, args ...uint64) int {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data, nr)
	binary.BigEndian.PutUint32(data[4:], arch)
	for i, a := range args { // little endian halves: the low one comes first
		binary.BigEndian.PutUint32(data[16+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[20+8*i:], uint32(a>>32))
	}
	got, err := f.vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestToolFilter(t *testing.T) {
	rt := openWith(t, "w1", shell)
	vm := newFilterVM(t, rt.Seccomp())
	const (
		native  = unix.AUDIT_ARCH_X86_64
		i386    = unix.AUDIT_ARCH_I386
		x32     = 0x40000000
		refused = retErrno | int(unix.EPERM)
		absent  = retErrno | int(unix.ENOSYS)
	)
	for _, c := range []struct {
		name string
		arch uint32
		nr   uint32
		args []uint64
		want int
	}{
		{"read", native, unix.SYS_READ, nil, retAllow},
		{"execve", native, unix.SYS_EXECVE, nil, retAllow},
		{"a thread", native, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, retAllow},
		{"a user namespace", native, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | unix.CLONE_VM}, refused},
		{"a mount namespace", native, unix.SYS_CLONE, []uint64{unix.CLONE_NEWNS}, refused},
		{"clone3", native, unix.SYS_CLONE3, nil, absent},
		{"unshare", native, unix.SYS_UNSHARE, nil, refused},
		{"setns", native, unix.SYS_SETNS, nil, refused},
		{"mount", native, unix.SYS_MOUNT, nil, refused},
		{"open_tree", native, unix.SYS_OPEN_TREE, nil, refused},
		{"bpf", native, unix.SYS_BPF, nil, refused},
		{"perf_event_open", native, unix.SYS_PERF_EVENT_OPEN, nil, refused},
		{"keyctl", native, unix.SYS_KEYCTL, nil, refused},
		{"userfaultfd", native, unix.SYS_USERFAULTFD, nil, refused},
		{"io_uring", native, unix.SYS_IO_URING_SETUP, nil, refused},
		{"a unix socket", native, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, retAllow},
		{"a pair of unix sockets", native, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, retAllow},
		{"a TCP socket", native, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, retAllow},
		{"a UDP socket", native, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM}, retAllow},
		{"the list of interfaces", native, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, retAllow},
		{"another netlink", native, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, refused},
		{"another transport", native, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, refused},
		{"another family", native, unix.SYS_SOCKET, []uint64{unix.AF_TIPC, unix.SOCK_STREAM}, refused},
		{"a family in the upper half", native, unix.SYS_SOCKET, []uint64{unix.AF_UNIX | unix.AF_TIPC<<32, unix.SOCK_STREAM}, refused},
		{"a pair of another family", native, unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC, unix.SOCK_STREAM}, refused},
		{"a kernel crypto socket", native, unix.SYS_SOCKET, []uint64{unix.AF_ALG}, refused},
		{"a socket to the hypervisor", native, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, refused},
		{"memory", native, unix.SYS_MMAP, []uint64{0, 4096, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS}, retAllow},
		{"huge pages", native, unix.SYS_MMAP, []uint64{0, 4096, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB}, refused},
		{"a file in memory", native, unix.SYS_MEMFD_CREATE, []uint64{1, unix.MFD_CLOEXEC}, retAllow},
		{"a file in huge pages", native, unix.SYS_MEMFD_CREATE, []uint64{1, unix.MFD_HUGETLB}, refused},
		{"shared memory", native, unix.SYS_SHMGET, []uint64{0, 4096, 0o600}, retAllow},
		{"shared huge pages", native, unix.SYS_SHMGET, []uint64{0, 4096, 0o4600}, refused},
		{"a usual personality", native, unix.SYS_PERSONALITY, []uint64{0}, retAllow},
		{"no address randomisation", native, unix.SYS_PERSONALITY, []uint64{0x0040000}, refused},
		{"no such call", native, 100_000, nil, refused},
		{"a call of 32-bit programs", i386, unix.SYS_READ, nil, refused},
		{"a call of the x32 interface", native, x32 | unix.SYS_READ, nil, absent},
	} {
		if got := vm.ask(t, c.arch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

// Every family and protocol, so that no rule of one lets another pass.
func TestToolFilterSockets(t *testing.T) {
	vm := newFilterVM(t, openWith(t, "w1", shell).Seccomp())
	usual := map[uint64][]uint64{
		unix.AF_UNIX: nil, unix.AF_NETLINK: {unix.NETLINK_ROUTE},
		unix.AF_INET:  {unix.IPPROTO_IP, unix.IPPROTO_TCP, unix.IPPROTO_UDP},
		unix.AF_INET6: {unix.IPPROTO_IP, unix.IPPROTO_TCP, unix.IPPROTO_UDP},
	}
	for family := range uint64(64) {
		protocols, known := usual[family]
		for protocol := range uint64(300) {
			want := retErrno | int(unix.EPERM)
			if known && (protocols == nil || slices.Contains(protocols, protocol)) {
				want = retAllow
			}
			if got := vm.ask(t, unix.AUDIT_ARCH_X86_64, unix.SYS_SOCKET, family, unix.SOCK_STREAM, protocol); got != want {
				t.Errorf("family %d, protocol %d: %#x, want %#x", family, protocol, got, want)
			}
			want = retErrno | int(unix.EPERM)
			if family == unix.AF_UNIX {
				want = retAllow
			}
			if got := vm.ask(t, unix.AUDIT_ARCH_X86_64, unix.SYS_SOCKETPAIR, family, unix.SOCK_STREAM, protocol); got != want {
				t.Errorf("a pair of family %d, protocol %d: %#x, want %#x", family, protocol, got, want)
			}
		}
	}
}
