package containerd

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	bpf "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	netbpf "golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// toolFilter compiles the filter that the agent loads before it becomes the
// tool: containerd's default profile for a process without any capability, with
// fewer sockets. clone3 answers ENOSYS, so that a C library falls back to clone,
// whose flags a filter can see.
//
// It is compiled here because the agent has nothing but the standard library,
// and because every byte of the agent is a byte that a sandbox starts with.
// The result is an array of struct sock_filter in the host's byte order.
func toolFilter() ([]byte, error) {
	profile := fewerSockets(containerProfile(nil))
	host, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("containerd: compile seccomp filter: %w", err)
	}
	policy, err := toPolicy(profile, host)
	if err != nil {
		return nil, fmt.Errorf("containerd: compile seccomp filter: %w", err)
	}
	program, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("containerd: compile seccomp filter: %w", err)
	}
	raw, err := netbpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("containerd: compile seccomp filter: %w", err)
	}
	out := make([]byte, 0, 8*len(raw))
	for _, i := range raw {
		out = binary.NativeEndian.AppendUint16(out, i.Op)
		out = append(out, i.Jt, i.Jf)
		out = binary.NativeEndian.AppendUint32(out, i.K)
	}
	return out, nil
}

// containerProfile is the default profile for a container with caps, for the
// machine's own system calls only. runc compiles the profile anew for each
// start, once for each architecture it names, and a 64-bit machine's default
// has three; the tool's filter would refuse the other two anyway.
func containerProfile(caps []string) *specs.LinuxSeccomp {
	p := seccomp.DefaultProfile(&specs.Spec{Process: &specs.Process{
		Capabilities: &specs.LinuxCapabilities{Bounding: caps},
	}})
	p.Architectures = nil // the native one
	return p
}

// fewerSockets leaves a tool the sockets that programs without a network use:
// unix, TCP and UDP for loopback, and the netlink of routes, by which C libraries
// list interfaces. The default profile lets three dozen families pass, and any
// protocol of each. The kernel loads a module for most of them when it is asked,
// and hardly any code of the kernel has had more ways up in it.
func fewerSockets(p *specs.LinuxSeccomp) *specs.LinuxSeccomp {
	var rules []specs.LinuxSyscall
	for _, rule := range p.Syscalls {
		rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool {
			return name == "socket" || name == "socketpair" || name == "socketcall"
		})
		if len(rule.Names) > 0 {
			rules = append(rules, rule)
		}
	}
	allow := func(name string, family, protocol uint64) {
		rules = append(rules, specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
			{Index: 0, Value: family, Op: specs.OpEqualTo}, {Index: 2, Value: protocol, Op: specs.OpEqualTo},
		}})
	}
	for _, name := range []string{"socket", "socketpair"} {
		rules = append(rules, specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
			{Index: 0, Value: unix.AF_UNIX, Op: specs.OpEqualTo},
		}})
	}
	for _, protocol := range []uint64{unix.IPPROTO_IP, unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		allow("socket", unix.AF_INET, protocol)
		allow("socket", unix.AF_INET6, protocol)
	}
	allow("socket", unix.AF_NETLINK, unix.NETLINK_ROUTE)
	p.Syscalls = rules
	return p
}

// toPolicy translates an OCI profile. A system call that the profile allows
// more than once, each time under another condition, becomes one group entry
// per condition; one that this machine does not know is left out, which leaves
// it forbidden.
func toPolicy(p *specs.LinuxSeccomp, host *arch.Info) (*bpf.Policy, error) {
	deny, err := toAction(p.DefaultAction, p.DefaultErrnoRet)
	if err != nil {
		return nil, err
	}
	policy := &bpf.Policy{DefaultAction: deny}
	groups := map[bpf.Action]*bpf.SyscallGroup{}
	var order []bpf.Action
	seen := map[string]bool{}
	for _, rule := range p.Syscalls {
		action, err := toAction(rule.Action, rule.ErrnoRet)
		if err != nil {
			return nil, err
		}
		group := groups[action]
		if group == nil {
			group = &bpf.SyscallGroup{Action: action}
			groups[action] = group
			order = append(order, action)
		}
		conditions, err := toConditions(rule.Args)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", rule.Names, err)
		}
		for _, name := range rule.Names {
			if _, known := host.SyscallNames[name]; !known {
				continue
			}
			if len(conditions) > 0 {
				group.NamesWithCondtions = append(group.NamesWithCondtions, bpf.NameWithConditions{Name: name, Conditions: conditions})
			} else if !seen[name] {
				seen[name] = true
				group.Names = append(group.Names, name)
			}
		}
	}
	for _, action := range order {
		policy.Syscalls = append(policy.Syscalls, *groups[action])
	}
	return policy, nil
}

func toAction(a specs.LinuxSeccompAction, errno *uint) (bpf.Action, error) {
	switch a {
	case specs.ActAllow:
		return bpf.ActionAllow, nil
	case specs.ActErrno:
		if errno != nil {
			return bpf.ActionErrno | bpf.Action(*errno&0xffff), nil
		}
		return bpf.ActionErrno, nil // EPERM, by the assembler
	default:
		return 0, fmt.Errorf("action %s is not translated", a)
	}
}

// toConditions translates the conditions of one rule, which must all hold. OCI
// runtimes read two conditions on one argument as alternatives, the assembler as
// both; such rules are refused until one is needed.
func toConditions(args []specs.LinuxSeccompArg) (bpf.ArgumentConditions, error) {
	seen := map[uint]bool{}
	var out bpf.ArgumentConditions
	for _, a := range args {
		if seen[a.Index] {
			return nil, fmt.Errorf("two conditions on argument %d in one rule are not translated", a.Index)
		}
		seen[a.Index] = true
		c := bpf.Condition{Argument: uint32(a.Index), Value: a.Value}
		switch {
		case a.Op == specs.OpEqualTo:
			c.Operation = bpf.Equal
		case a.Op == specs.OpNotEqual:
			c.Operation = bpf.NotEqual
		case a.Op == specs.OpLessThan:
			c.Operation = bpf.LessThan
		case a.Op == specs.OpMaskedEqual && a.ValueTwo == 0:
			c.Operation = bpf.BitsNotSet
		default:
			return nil, fmt.Errorf("condition %s is not translated", a.Op)
		}
		out = append(out, c)
	}
	return out, nil
}
