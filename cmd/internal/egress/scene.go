package egress

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/worker/egress"
)

// answer is what came of one attempt.
type answer struct {
	name string
	open bool
	why  string
}

// scene is where it is played.
type scene struct {
	rt      sandbox.Runtime
	witness *witness
	policy  *egress.Policy
}

// allow is the tool's list. Its author means no good either, or knows no better:
// most of it leads where nobody may go.
var allow = catalog.Network{Allow: []string{
	"allowed.test:443", "allowed.test:80", "*.wild.test:443", "198.18.0.0/24:8443",
	"private.test:443", "metadata.test:80", "metadata6.test:80", "loopback.test:4222", "mapped.test:80", "nat64.test:80",
	"sixtofour.test:80", "own.test:4222", "mixed.test:443", "rebind.test:443",
	"10.0.0.0/8:443", "169.254.0.0/16:80", "127.0.0.0/8:4222", "100.64.0.0/10:80", "[fd00::/8]:80", "[::/8]:80", "[fe80::/10]:80",
}}

// Bounds of one call and of one clean-up.
const (
	callTimeout  = 5 * time.Minute
	closeTimeout = time.Minute
)

const tool = "/tool"

// play lets the tool make all its attempts in one sandbox, beside a second one,
// and then asks the witness.
func (s *scene) play(ctx context.Context, runtime, isolation string) (answers []answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	spec := sandbox.Spec{Image: ImageName, Pull: "never", Runtime: runtime, Isolation: isolation}
	if isolation == "cell" {
		spec.Owner = "default/egress"
	}
	peer := "toolfleet-egress-" + rand.Text()
	stop, err := s.hold(ctx, spec, peer)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	allowed, err := allow.Allowed()
	if err != nil {
		return nil, err
	}
	network := s.policy.Call(egress.Options{Allowed: allowed, Logger: slog.New(slog.DiscardHandler)})
	defer network.Close()
	s.witness.take()
	sb, err := sandbox.Open(ctx, s.rt, newID(), spec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeSandbox(ctx, sb)) }()
	exit, err := sb.Run(ctx, sandbox.Process{
		Argv: []string{tool, "-abstract", s.witness.abstract, "-peer", peer}, Env: network.Env(), Listeners: network.Listeners(),
	}, sandbox.Sink{})
	if err != nil {
		return nil, err
	}
	if answers, err = parse(exit.Stdout); err != nil {
		return nil, fmt.Errorf("%w; the tool ended as %s %s %s, and said %q", err, exit.Cause, exit.Signal, exit.Detail, exit.Stderr)
	}
	return append(answers, s.seen()...), nil
}

// seen is what the host knows better than the tool.
func (s *scene) seen() []answer {
	hits, asked := s.witness.take()
	reached := answer{name: "seen-by-the-host", why: "nothing was reached but what is allowed"}
	if len(hits) > 0 {
		reached.open, reached.why = true, "the witness was reached at "+strings.Join(hits, ", ")
	}
	heard := answer{name: "heard-by-the-resolver", why: "the resolver heard of allowed names only"}
	for _, name := range asked {
		if strings.Contains(name, "leak") || strings.Contains(name, "google") || name == "wild.test" || name == "notwild.test" {
			heard.open, heard.why = true, "the resolver was asked for "+name
		}
	}
	return []answer{reached, heard}
}

// parse reads what the tool said. All that it planned must be there.
func parse(stdout []byte) ([]answer, error) {
	lines := strings.Split(strings.TrimSpace(string(stdout)), "\n")
	plan, err := strconv.Atoi(strings.TrimPrefix(lines[0], "plan "))
	if err != nil || plan == 0 || plan != len(lines)-1 {
		return nil, fmt.Errorf("the tool planned %q and gave %d answers", lines[0], len(lines)-1)
	}
	var answers []answer
	for _, line := range lines[1:] {
		parts := strings.SplitN(line, "\t", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("the tool said %q", line)
		}
		answers = append(answers, answer{parts[0], parts[1] != "denied", parts[2]})
	}
	return answers, nil
}

// hold runs a neighbour that listens on an abstract socket until stop.
func (s *scene) hold(ctx context.Context, spec sandbox.Spec, name string) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	sb, err := sandbox.Open(ctx, s.rt, newID(), spec)
	if err != nil {
		cancel()
		return nil, err
	}
	listens, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		said := false
		_, err := sb.Run(ctx, sandbox.Process{Argv: []string{tool, "hold", name}}, sandbox.Sink{Stderr: func(piece []byte) {
			if !said && bytes.Contains(piece, []byte("listening")) {
				said = true
				close(listens)
			}
		}})
		ended <- err
	}()
	stop = func() error {
		cancel()
		return errors.Join(<-ended, closeSandbox(ctx, sb))
	}
	select {
	case <-listens:
		return stop, nil
	case err := <-ended:
		ended <- err
		return nil, errors.Join(errors.New("the neighbour does not listen"), stop())
	}
}

func newID() string { return "egress-" + strings.ToLower(rand.Text()[:12]) }

func closeSandbox(ctx context.Context, sb *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return sb.Close(ctx)
}
