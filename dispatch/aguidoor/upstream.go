package aguidoor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/agui"
)

// The codes of RUN_ERROR that say what an agent did.
const (
	codeUnreachable = "agent_unreachable"
	codeRefused     = "agent_refused"
	codeCut         = "agent_cut"
	codeMalformed   = "agent_malformed"
	codeSequence    = "agent_sequence"
	codeSilent      = "agent_silent"
	codeTooMuch     = "agent_too_much"
)

// maxRound bounds what an agent may send in one round, in bytes.
const maxRound = 256 << 20

// upstream is one round of an agent: a request, and the reading of the stream
// that answers it.
type upstream struct {
	agent *Agent
	input agui.RunAgentInput
	// warn is told, by another goroutine, what was left out of the stream.
	warn func(agui.Warning)

	events  chan upstreamEvent
	ctx     context.Context // of the round
	stop    context.CancelFunc
	running sync.WaitGroup
	silence *time.Timer

	decoder  agui.Decoder
	calls    agui.Expander
	messages messageChunks
	verifier agui.Verifier
}

// upstreamEvent is what an event of an agent stands for, in the spelling
// without chunks, or why there is no more. After a terminal event nothing comes.
type upstreamEvent struct {
	ev  agui.Event
	err error
}

// startUpstream begins a round. close must be called.
func startUpstream(ctx context.Context, a *Agent, in agui.RunAgentInput, warn func(agui.Warning)) *upstream {
	u := &upstream{agent: a, input: in, warn: warn, events: make(chan upstreamEvent)}
	u.verifier.Seed(in.Messages)
	u.ctx, u.stop = context.WithCancel(ctx)
	u.running.Go(u.run)
	return u
}

// close ends the round, if it has not ended, and waits until it has.
func (u *upstream) close() {
	u.stop()
	u.running.Wait()
}

// The causes of a round's end by its own clocks.
var (
	errSilent  = errors.New("aguidoor: the agent is silent")
	errTooMuch = errors.New("aguidoor: the agent does not come to an end")
)

func (u *upstream) run() {
	ctx, done := context.WithTimeoutCause(u.ctx, u.agent.Timeout, errTooMuch)
	defer done()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	u.silence = time.AfterFunc(u.agent.Silence, func() { end(errSilent) })
	defer u.silence.Stop()

	err := u.ask(ctx)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return
	case errors.Is(cause, errSilent):
		err = &runError{code: codeSilent, message: fmt.Sprintf("The agent sent nothing for %s.", u.agent.Silence), cause: err}
	case errors.Is(cause, errTooMuch):
		err = &runError{code: codeTooMuch, message: fmt.Sprintf("The agent did not come to an end within %s.", u.agent.Timeout), cause: err}
	}
	u.send(upstreamEvent{err: err})
}

// send hands over one event. Meanwhile it is not the agent that is silent.
func (u *upstream) send(e upstreamEvent) bool {
	u.silence.Stop()
	defer u.silence.Reset(u.agent.Silence)
	select {
	case u.events <- e:
		return true
	case <-u.ctx.Done():
		return false
	}
}

// client reaches agents: by no proxy of the environment, behind no redirect,
// and with a connection for each round, so that nothing is left when it ends.
var client = &http.Client{
	Transport: &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true,
		DisableCompression:     true, // a small stream must not become a large one
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// ask sends the request and reads the stream to its terminal event.
func (u *upstream) ask(ctx context.Context) error {
	body, err := json.Marshal(u.input)
	if err != nil {
		return fmt.Errorf("aguidoor: input of an agent: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.agent.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("aguidoor: %w", err)
	}
	if u.agent.Header != nil {
		req.Header = u.agent.Header.Clone()
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	res, err := client.Do(req)
	if err != nil {
		return &runError{code: codeUnreachable, message: "The agent cannot be reached.", cause: err}
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return &runError{code: codeRefused, message: fmt.Sprintf("The agent refused the run with the status %d.", res.StatusCode)}
	}
	if t, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || t != "text/event-stream" {
		return &runError{code: codeRefused, message: "The agent answered with something else than an event stream.", cause: err}
	}
	return u.read(&heard{body: res.Body, silence: u.silence, pause: u.agent.Silence, left: maxRound})
}

// read reads the stream to its terminal event.
func (u *upstream) read(body io.Reader) error {
	frames := agui.NewFrameReader(body)
	for {
		frame, err := frames.Next()
		var ours *runError
		var theirs *agui.MalformedError
		switch {
		case errors.As(err, &ours), errors.As(err, &theirs):
			return malformed(err)
		case err != nil:
			return &runError{code: codeCut, message: "The agent's stream ended before its run did.", cause: err}
		}
		ended, err := u.event(frame.Data)
		if err != nil || ended {
			return err
		}
	}
}

// event takes one event through all stages. It reports whether the run ended.
func (u *upstream) event(data []byte) (ended bool, err error) {
	ev, warnings, err := u.decoder.Decode(data)
	for _, w := range warnings {
		u.warn(w)
	}
	if err != nil || ev == nil {
		return false, malformed(err)
	}
	triads, err := u.calls.Expand(ev)
	if err != nil {
		return false, malformed(err)
	}
	for _, ev := range triads {
		whole, err := u.messages.expand(ev)
		if err != nil {
			return false, malformed(err)
		}
		for _, ev := range whole {
			if ended, err = u.check(ev); err != nil {
				return false, err
			}
			if !u.send(upstreamEvent{ev: ev}) {
				return true, nil // nobody reads any more
			}
		}
	}
	return ended, nil
}

// check holds an event against the rules of a stream, and a run against what
// was asked for.
func (u *upstream) check(ev agui.Event) (ended bool, err error) {
	switch e := ev.(type) {
	case agui.RunStarted:
		if e.ThreadID != u.input.ThreadID || e.RunID != u.input.RunID {
			return false, &runError{code: codeSequence, message: "The agent began another run than the one it was asked for."}
		}
	case agui.RunFinished:
		ended = true
		if e.Outcome != nil && e.Outcome.PendingToolCallIDs != nil {
			// What is pending is found out here, whatever the agent believes.
			o := *e.Outcome
			o.PendingToolCallIDs = nil
			e.Outcome = &o
			ev = e
		}
	case agui.RunError:
		ended = true
	}
	return ended, malformed(u.verifier.Check(ev))
}

// malformed makes of a peer's fault what the client is told of it; other errors
// stay as they are.
func malformed(err error) error {
	var shape *agui.MalformedError
	var order *agui.SequenceError
	switch {
	case errors.As(err, &shape):
		return &runError{code: codeMalformed, message: "The agent sent something that is no AG-UI event: " + strings.TrimPrefix(shape.Error(), "agui: ") + "."}
	case errors.As(err, &order):
		return &runError{code: codeSequence, message: "The agent broke the order of events: " + strings.TrimPrefix(order.Error(), "agui: ") + "."}
	}
	return err
}

// heard is a body that is being listened to: every byte is a sign of life, and
// there is an end to them.
type heard struct {
	body    io.Reader
	silence *time.Timer
	pause   time.Duration
	left    int64
}

// Read implements io.Reader.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.body.Read(p)
	h.silence.Reset(h.pause)
	if h.left -= int64(n); h.left < 0 {
		return 0, &runError{code: codeTooMuch, message: fmt.Sprintf("The agent sent more than %d MiB.", maxRound>>20)}
	}
	return n, err
}
