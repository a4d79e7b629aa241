package containerd

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// toolProfile is what a tool may ask of the kernel: containerd's default profile
// for a process without any capability, less what `make escape` found too much.
//
// Sockets: a tool has those that programs without a network use, which are unix
// sockets, TCP and UDP for loopback, and the netlink of routes, by which C
// libraries list interfaces. The default profile lets three dozen families pass,
// and any protocol of each. The kernel loads a module for most of them when it is
// asked, and hardly any code of the kernel has had more ways up in it.
//
// Huge pages: they come from a pool that the operator reserved for somebody else,
// and no limit on memory counts them.
func toolProfile() *specs.LinuxSeccomp {
	p := containerProfile(nil)
	narrowed := []string{"socket", "socketpair", "socketcall", "mmap", "mmap2", "memfd_create", "shmget"}
	var rules []specs.LinuxSyscall
	for _, rule := range p.Syscalls {
		rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool { return slices.Contains(narrowed, name) })
		if len(rule.Names) > 0 {
			rules = append(rules, rule)
		}
	}
	for _, call := range []string{"socket", "socketpair"} {
		rules = append(rules, allow(call, equal(0, unix.AF_UNIX)))
	}
	for _, protocol := range []uint64{unix.IPPROTO_IP, unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		rules = append(rules,
			allow("socket", equal(0, unix.AF_INET), equal(2, protocol)),
			allow("socket", equal(0, unix.AF_INET6), equal(2, protocol)))
	}
	const shmHugeTLB = 0o4000
	rules = append(rules,
		allow("socket", equal(0, unix.AF_NETLINK), equal(2, unix.NETLINK_ROUTE)),
		allow("mmap", without(3, unix.MAP_HUGETLB)),
		allow("memfd_create", without(1, unix.MFD_HUGETLB)),
		allow("shmget", without(2, shmHugeTLB)))
	p.Syscalls = rules
	return p
}

// allow lets a call pass when all conditions hold.
func allow(call string, conditions ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{call}, Action: specs.ActAllow, Args: conditions}
}

func equal(argument uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: argument, Value: value, Op: specs.OpEqualTo}
}

// without holds when none of the bits is set.
func without(argument uint, bits uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: argument, Value: bits, Op: specs.OpMaskedEqual}
}
