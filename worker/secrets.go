package worker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/worker/secret"
)

// secrets are those of one call: how they go into its sandbox, and what keeps
// them from coming out. The zero value is that of a call without any.
type secrets struct {
	env    []string
	files  []sandbox.SecretFile
	redact *secret.Redactor

	injections []injection
}

// takeSecrets reads the values that the tool is to have. It comes before the
// sandbox, so that a call that cannot have its secrets starts nothing. From here
// on nothing that a logger of the attempt says has one in it.
func (a *attempt) takeSecrets() error {
	spec := a.job.Spec
	if len(spec.Secrets) == 0 {
		return nil
	}
	names := spec.SecretNames()
	values, err := a.Secrets.Resolve(spec.Name, a.ref.Tenant, names)
	if err != nil {
		return err
	}
	s := secrets{redact: secret.NewRedactor(values...)}
	for _, want := range spec.Secrets {
		value := values[slices.Index(names, want.Name)].Reveal()
		switch {
		case want.Env != "":
			s.env = append(s.env, want.Env+"="+value)
		case want.File != "":
			s.files = append(s.files, sandbox.SecretFile{Name: want.File, Data: []byte(value)})
		default:
			if err := s.inject(want, value); err != nil {
				return err
			}
		}
	}
	a.secrets = s
	a.logger = slog.New(s.redact.Handler(a.logger.Handler()))
	return nil
}

// withoutSecrets ends an attempt that could not have its secrets. One that
// nobody granted is a decision, and final: the call is declined at once. One
// that was granted and cannot be read is a failure of ours. Another worker, or
// this one when its volume is mounted, may have it; so it is tried again like
// any other, and in the end kept as a dead letter.
func (a *attempt) withoutSecrets(ctx context.Context, cause error) error {
	var e *secret.Error
	if !errors.As(cause, &e) {
		return cause
	}
	if errors.Is(cause, secret.ErrNotGranted) {
		a.logger.Warn("call declined: its tool names a secret that is not granted", "secret", e.Name)
		return a.refuse(ctx, call.Failure(call.KindDeclined, fmt.Sprintf(
			"The tool was not run: it needs the secret %q, which the fleet's operator has not granted to this tool for this tenant.", e.Name)))
	}
	if err := a.claim(ctx); err != nil {
		return err
	}
	if a.n < call.MaxAttempts {
		return giveBack(time.Duration(a.n*a.n)*time.Second, cause)
	}
	a.logger.Error("attempts spent", "error", cause, "attempt", a.n)
	return a.giveUp(ctx, call.Failure(call.KindInternal, fmt.Sprintf(
		"The tool could not be run after %d attempts: its secret %q cannot be read; the operator's log says why.", a.n, e.Name)))
}

// refuse ends a call that must not be run.
func (a *attempt) refuse(ctx context.Context, r call.Result) error {
	state, err := a.look(ctx)
	if err != nil {
		return giveBack(busyPause, err)
	}
	if state.Result != nil {
		return nil
	}
	return a.endUnrun(ctx, state, r)
}

// exit takes the secrets out of what is cut up before it becomes a result: of a
// secret that was cut, less would be known again. The rest is left to result,
// which knows what it is.
func (s *secrets) exit(spec *catalog.Spec, e sandbox.Exit) sandbox.Exit {
	if s.redact == nil {
		return e
	}
	e.Stderr = s.redact.Bytes(e.Stderr)
	if spec.Output == catalog.OutputJSON {
		e.Stdout = s.redact.JSON(e.Stdout)
	}
	return e
}

// result takes the secrets out of a result: the last thing that is done to it
// before it leaves, whoever made it.
func (s *secrets) result(r call.Result) call.Result {
	if s.redact == nil {
		return r
	}
	r.Content, r.Extra = s.parts(r.Content), s.parts(r.Extra)
	s.execution(r.Execution)
	if r.Error != nil {
		e := *r.Error
		e.Message = s.redact.String(e.Message)
		r.Error = &e
	}
	return r
}

// execution takes the secrets out of the names that a tool chose.
func (s *secrets) execution(e *call.Execution) {
	if e == nil {
		return
	}
	for i := range e.Egress {
		e.Egress[i].To = s.redact.String(e.Egress[i].To)
	}
	if e.Files == nil {
		return
	}
	for i := range e.Files.LeftOut {
		left := &e.Files.LeftOut[i]
		left.Name, left.Reason = s.redact.String(left.Name), s.redact.String(left.Reason)
	}
}

func (s *secrets) parts(parts []agui.Part) []agui.Part {
	clean := slices.Clone(parts)
	for i := range clean {
		p := &clean[i]
		p.ID, p.Text = s.redact.String(p.ID), s.redact.String(p.Text)
		if p.Metadata != nil {
			p.Metadata = s.redact.JSON(p.Metadata)
		}
		if p.Source != nil {
			source := s.source(*p.Source)
			p.Source = &source
		}
	}
	s.across(parts, clean)
	return clean
}

// across mends texts that hold a secret only together: a reader joins them with
// nothing between. The end of one then moves to the next.
func (s *secrets) across(parts, clean []agui.Part) {
	var whole, apart []byte
	for i := range parts {
		whole, apart = append(whole, parts[i].Text...), append(apart, clean[i].Text...)
	}
	if string(s.redact.Bytes(whole)) == string(apart) {
		return
	}
	stream, last := s.redact.Stream(), -1
	for i := range parts {
		if parts[i].Type == agui.PartText {
			clean[i].Text, last = string(stream.Write([]byte(parts[i].Text))), i
		}
	}
	clean[last].Text += string(stream.Close())
}

func (s *secrets) source(src agui.Source) agui.Source {
	src.MimeType, src.Provider = s.redact.String(src.MimeType), s.redact.String(src.Provider)
	if src.Type == agui.SourceData {
		data, err := base64.StdEncoding.DecodeString(src.Value)
		if err == nil {
			if clean := s.redact.Bytes(data); len(clean) != len(data) || string(clean) != string(data) {
				src.Value = base64.StdEncoding.EncodeToString(clean)
			}
			return src
		}
	}
	src.Value = s.redact.String(src.Value)
	return src
}
