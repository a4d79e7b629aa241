package containerd

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// toolFilter compiles the filter that the agent loads before it becomes the
// tool, from [toolProfile]. clone3 answers ENOSYS, so that a C library falls back
// to clone, whose flags a filter can see.
//
// It is compiled here because the agent has nothing but the standard library,
// and because every byte of the agent is a byte that a sandbox starts with.
// The result is an array of struct sock_filter in the host's byte order.
func toolFilter() ([]byte, error) {
	host, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("containerd: compile seccomp filter: %w", err)
	}
	program, err := compile(toolProfile(), host)
	if err != nil {
		return nil, fmt.Errorf("containerd: compile seccomp filter: %w", err)
	}
	raw, err := bpf.Assemble(program)
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

// The answers of a filter, from linux/seccomp.h. An errno is added to the latter.
const (
	answerAllow = 0x7fff0000
	answerErrno = 0x00050000
)

// Offsets in struct seccomp_data: the call's number, the architecture, and the
// arguments of 64 bits each.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// alternative is one way in which a call is answered: when all conditions hold.
type alternative struct {
	conditions []specs.LinuxSeccompArg
	answer     uint32
}

// compile makes a filter of an OCI profile: a binary search among the stretches
// of numbers that are answered alike, with a block at each leaf. A call that this
// machine does not know is left out, which leaves it to the default.
//
// There is a library for this too, of which only the tables of calls are used
// here. Its code looks at the next call's number after it has loaded an argument
// over it, so that an argument may be taken for a call: with conditions on mmap,
// which is number 9, it let sockets of family 9 pass. In a tree whose leaves each
// end with an answer this cannot be.
//
// Linux remembers which calls are always allowed, and would take a chain of
// blocks as well. gVisor does so too, but for that it asks the filter about 2,001
// numbers when it is loaded and again for every process and every thread: a
// chain, of 757 instructions, was two thirds of what a call cost there.
func compile(p *specs.LinuxSeccomp, host *arch.Info) ([]bpf.Instruction, error) {
	deny, err := answer(p.DefaultAction, p.DefaultErrnoRet)
	if err != nil {
		return nil, err
	}
	calls, err := byNumber(p, host)
	if err != nil {
		return nil, err
	}
	all, err := stretches(calls, deny)
	if err != nil {
		return nil, err
	}
	if host.ID == arch.X86_64.ID {
		// The x32 table has the same architecture and a bit in the number.
		all = append(all, stretch{uint32(arch.X32.SeccompMask), always(answerErrno | uint32(unix.ENOSYS))})
	}
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(host.ID), SkipTrue: 1},
		bpf.RetConstant{Val: deny},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
	}, search(all)...), nil
}

// stretch is a run of call numbers, up to the first of the next stretch, that
// one block answers.
type stretch struct {
	first uint32
	block []bpf.Instruction
}

// stretches covers all numbers, of which those without a call are denied.
func stretches(calls map[uint32][]alternative, deny uint32) ([]stretch, error) {
	all := []stretch{{0, always(deny)}}
	add := func(s stretch) {
		last := &all[len(all)-1]
		switch {
		case slices.Equal(last.block, s.block):
		case last.first == s.first:
			last.block = s.block
		default:
			all = append(all, s)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(calls)) {
		block, err := callBlock(calls[number], deny)
		if err != nil {
			return nil, err
		}
		add(stretch{number, block})
		if _, next := calls[number+1]; !next {
			add(stretch{number + 1, always(deny)})
		}
	}
	return all, nil
}

// search finds the stretch of the number that was loaded. There is at least one.
func search(all []stretch) []bpf.Instruction {
	if len(all) == 1 {
		return all[0].block
	}
	middle := len(all) / 2
	low, high := search(all[:middle]), search(all[middle:])
	// A conditional jump reaches 255 instructions, another one any number.
	program := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: all[middle].first, SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(low))},
	}
	if len(low) <= 255 {
		program = []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: all[middle].first, SkipTrue: uint8(len(low))}}
	}
	return slices.Concat(program, low, high)
}

// always is the block of a call whose arguments do not matter.
func always(answer uint32) []bpf.Instruction {
	return []bpf.Instruction{bpf.RetConstant{Val: answer}}
}

// byNumber sorts the profile's rules by the number of the call.
func byNumber(p *specs.LinuxSeccomp, host *arch.Info) (map[uint32][]alternative, error) {
	calls := map[uint32][]alternative{}
	for _, rule := range p.Syscalls {
		a, err := answer(rule.Action, rule.ErrnoRet)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", rule.Names, err)
		}
		for _, name := range rule.Names {
			if number, known := host.SyscallNames[name]; known {
				calls[uint32(number)] = append(calls[uint32(number)], alternative{rule.Args, a})
			}
		}
	}
	return calls, nil
}

func answer(a specs.LinuxSeccompAction, errno *uint) (uint32, error) {
	switch {
	case a == specs.ActAllow:
		return answerAllow, nil
	case a == specs.ActErrno && errno != nil:
		return answerErrno | uint32(*errno&0xffff), nil
	case a == specs.ActErrno:
		return answerErrno | uint32(unix.EPERM), nil
	}
	return 0, fmt.Errorf("action %s is not translated", a)
}

// callBlock answers one call: by the first alternative that holds, where one
// without conditions comes before all others, and else by denying it.
func callBlock(alternatives []alternative, deny uint32) ([]bpf.Instruction, error) {
	var block []bpf.Instruction
	for _, a := range alternatives {
		if len(a.conditions) == 0 {
			return always(a.answer), nil
		}
		one := []bpf.Instruction{bpf.RetConstant{Val: a.answer}}
		for _, c := range slices.Backward(a.conditions) {
			code, err := condition(c, uint8(len(one)))
			if err != nil {
				return nil, err
			}
			one = append(code, one...)
			if len(one) > 255 {
				return nil, fmt.Errorf("%d conditions in one rule are not translated", len(a.conditions))
			}
		}
		block = append(block, one...)
	}
	return append(block, bpf.RetConstant{Val: deny}), nil
}

// condition goes on with the next instruction when c holds, and else skips rest
// instructions more. OCI runtimes take two conditions on one argument for
// alternatives; here, as in seccomp(2) itself, all of a rule must hold, and no
// rule of ours has two on one.
func condition(c specs.LinuxSeccompArg, rest uint8) ([]bpf.Instruction, error) {
	low, high := uint32(offArgs+8*c.Index), uint32(offArgs+8*c.Index+4)
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		low, high = high, low
	}
	loadLow, loadHigh := bpf.LoadAbsolute{Off: low, Size: 4}, bpf.LoadAbsolute{Off: high, Size: 4}
	lowValue, highValue := uint32(c.Value), uint32(c.Value>>32)
	switch c.Op {
	case specs.OpEqualTo:
		return []bpf.Instruction{
			loadHigh,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: highValue, SkipTrue: 2 + rest},
			loadLow,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: lowValue, SkipTrue: rest},
		}, nil
	case specs.OpNotEqual:
		return []bpf.Instruction{
			loadHigh,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: highValue, SkipTrue: 2},
			loadLow,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: lowValue, SkipTrue: rest},
		}, nil
	case specs.OpLessThan:
		return []bpf.Instruction{
			loadHigh,
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: highValue, SkipTrue: 3 + rest},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: highValue, SkipTrue: 2},
			loadLow,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: lowValue, SkipTrue: rest},
		}, nil
	case specs.OpMaskedEqual:
		// Value is the mask.
		return []bpf.Instruction{
			loadHigh,
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: highValue},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(c.ValueTwo >> 32), SkipTrue: 3 + rest},
			loadLow,
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: lowValue},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(c.ValueTwo), SkipTrue: rest},
		}, nil
	}
	return nil, fmt.Errorf("condition %s is not translated", c.Op)
}
