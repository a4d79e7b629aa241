package escape

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// The words of an outcome, as they are printed.
const (
	denied = "denied"
	open   = "OPEN"
	absent = "absent"
)

// answer is what came of one attempt.
type answer struct{ name, word, reason string }

// scene is one runtime with one isolation.
type scene struct {
	rt         sandbox.Runtime
	witness    *witness
	containerd string // path of its socket
	spec       sandbox.Spec
}

// Bounds of one call and of one clean-up.
const (
	callTimeout  = 5 * time.Minute
	closeTimeout = time.Minute
)

// tool is where the image has the hostile tool.
const tool = "/tool"

// play makes every attempt.
func (s *scene) play(ctx context.Context) ([]answer, error) {
	answers, err := s.attempts(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range holds {
		a, err := s.hold(ctx, h)
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// attempts runs the tool's attempts in one sandbox, beside a second one that
// listens on a socket.
func (s *scene) attempts(ctx context.Context) (answers []answer, err error) {
	peer := "toolfleet-escape-" + rand.Text()
	stop, err := s.start(ctx, "abstract-socket="+peer)
	if err != nil {
		return nil, err
	}
	defer func() {
		_, stopErr := stop()
		err = errors.Join(err, stopErr)
	}()
	w := s.witness
	before := w.look()
	exit, err := s.call(ctx, sandbox.Process{Argv: []string{
		tool, "-port", strconv.Itoa(w.port), "-addresses", strings.Join(w.addresses, ","), "-abstract", w.abstract, "-peer", peer,
		"-marker", w.marker, "-secret", w.secret, "-containerd", s.containerd,
	}})
	if err != nil {
		return nil, err
	}
	if answers, err = parse(exit.Stdout); err != nil {
		return nil, fmt.Errorf("%w; the tool ended as %s %s %s, and said %q", err, exit.Cause, exit.Signal, exit.Detail, exit.Stderr)
	}
	changed := w.changes(before)
	for i, a := range answers {
		if what, seen := changed[a.name]; seen {
			answers[i] = answer{a.name, open, "seen on the host: " + what}
		}
	}
	return answers, nil
}

// parse reads what the tool said. All that it planned must be there.
func parse(stdout []byte) ([]answer, error) {
	lines := strings.Split(strings.TrimSpace(string(stdout)), "\n")
	plan, err := strconv.Atoi(strings.TrimPrefix(lines[0], "plan "))
	if err != nil || plan != len(lines)-1 {
		return nil, fmt.Errorf("the tool planned %q and gave %d answers", lines[0], len(lines)-1)
	}
	answers := make([]answer, 0, plan)
	for _, line := range lines[1:] {
		parts := strings.SplitN(line, "\t", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("the tool said %q", line)
		}
		a := answer{parts[0], parts[1], parts[2]}
		if a.word != denied && a.word != absent {
			a.word = open
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// call runs one process in a sandbox of its own.
func (s *scene) call(ctx context.Context, p sandbox.Process) (_ sandbox.Exit, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sb, err := sandbox.Open(ctx, s.rt, newID(), s.spec)
	if err != nil {
		return sandbox.Exit{}, err
	}
	defer func() { err = errors.Join(err, closeSandbox(ctx, sb)) }()
	return sb.Run(ctx, p, sandbox.Sink{})
}

func newID() string { return "escape-" + strings.ToLower(rand.Text()[:12]) }

func closeSandbox(ctx context.Context, sb *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return sb.Close(ctx)
}

// start starts the tool holding something, and returns once it does. The
// returned stop ends it, removes its sandbox, and tells what it said.
func (s *scene) start(ctx context.Context, what string) (stop func() (sandbox.Exit, error), err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	sb, err := sandbox.Open(ctx, s.rt, newID(), s.spec)
	if err != nil {
		cancel()
		return nil, err
	}
	said, ended := make(chan struct{}), make(chan struct{})
	var exit sandbox.Exit
	var runErr error
	go func() {
		defer close(ended)
		var heard bytes.Buffer // bounded: the first line ends it
		exit, runErr = sb.Run(ctx, sandbox.Process{
			Argv: []string{tool, "hold", what}, Env: []string{"MARKER_DIR=" + s.witness.dir},
		}, sandbox.Sink{Stderr: func(piece []byte) {
			if bytes.IndexByte(heard.Bytes(), '\n') >= 0 {
				return
			}
			heard.Write(piece)
			if bytes.IndexByte(piece, '\n') >= 0 {
				close(said)
			}
		}})
	}()
	select {
	case <-said:
	case <-ended:
	}
	return func() (sandbox.Exit, error) {
		cancel()
		<-ended
		return exit, errors.Join(runErr, closeSandbox(ctx, sb))
	}, nil
}

// hold lets the tool take all it gets of something, and looks from the host.
func (s *scene) hold(ctx context.Context, h holding) (answer, error) {
	if err := h.check(s.witness); err != nil {
		return answer{h.name, absent, fmt.Sprintf("the host itself cannot: %v", err)}, nil
	}
	stop, err := s.start(ctx, h.takes)
	if err != nil {
		return answer{}, err
	}
	during := h.check(s.witness)
	exit, err := stop()
	if err != nil {
		return answer{}, err
	}
	said := strings.Join(strings.Fields(string(exit.Stderr)), " ")
	if err := errors.Join(during, h.check(s.witness)); err != nil {
		return answer{h.name, open, fmt.Sprintf("the tool %.100s, and the host: %v", said, err)}, nil
	}
	return answer{h.name, denied, fmt.Sprintf("the tool %.100s (%s)", said, exit.Cause)}, nil
}
