package dispatch

import (
	"context"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/results"
)

// Standing is where a call stands.
type Standing struct {
	results.State
	Status call.Status
}

// Status looks where a call stands. ErrNotFound when there is no such call.
func (d *Dispatcher) Status(ctx context.Context, ref results.Ref) (Standing, error) {
	st, err := d.Log.Look(ctx, ref)
	if err != nil {
		return Standing{}, classify(ctx, err)
	}
	return Standing{State: st, Status: statusOf(st)}, nil
}

// statusOf derives the status from what is in the log. A void start was taken
// by somebody who is about to write the result; until then the call waits.
func statusOf(st results.State) call.Status {
	switch {
	case st.Result != nil:
		return st.Result.Status()
	case st.Start != nil && !st.Start.Void:
		return call.StatusRunning
	case st.Claims > 0:
		return call.StatusStarting
	}
	return call.StatusQueued
}

// Wait returns the call's result, waiting for it as long as ctx allows; when
// ctx is done it returns the cause.
func (d *Dispatcher) Wait(ctx context.Context, ref results.Ref) (call.Result, error) {
	st, err := d.Log.Look(ctx, ref)
	if err != nil {
		return call.Result{}, classify(ctx, err)
	}
	st, err = d.Log.Await(ctx, ref, st)
	if err != nil {
		return call.Result{}, classify(ctx, err)
	}
	return *st.Result, nil
}

// Await waits for the end of a call that was submitted and says where it stands
// then; when ctx is done first it returns the cause. A call that the submit
// made is followed from its admission, which asks the log nothing.
func (d *Dispatcher) Await(ctx context.Context, t Ticket) (Standing, error) {
	st := t.admitted
	if !t.New {
		var err error
		if st, err = d.Log.Look(ctx, t.Ref); err != nil {
			return Standing{}, classify(ctx, err)
		}
	}
	st, err := d.Log.Await(ctx, t.Ref, st)
	if err != nil {
		return Standing{}, classify(ctx, err)
	}
	return Standing{State: st, Status: statusOf(st)}, nil
}

// List lists a tenant's calls, newest first.
func (d *Dispatcher) List(ctx context.Context, tenant string, o results.ListOptions) ([]results.Summary, error) {
	list, err := d.Log.List(ctx, tenant, o)
	return list, classify(ctx, err)
}

// BlobURL makes the URL under which a client can fetch a blob.
type BlobURL func(blob.ID) string

// PublicParts returns parts with the references to blobs of the call ref
// turned into URLs. Only that call's own blobs are: a tool can write any
// reference into its result, and a URL would give away what it names. The
// slice given is not changed.
func PublicParts(parts []agui.Part, ref results.Ref, url BlobURL) []agui.Part {
	if url == nil {
		return parts
	}
	var out []agui.Part
	for i, p := range parts {
		if p.Source == nil || p.Source.Type != agui.SourceURL {
			continue
		}
		id, err := blob.Parse(p.Source.Value)
		if err != nil || id.Tenant != ref.Tenant || id.Key != ref.Key {
			continue
		}
		if out == nil {
			out = append(out, parts...)
		}
		src := *p.Source
		src.Value = url(id)
		out[i].Source = &src
	}
	if out == nil {
		return parts
	}
	return out
}

// PublicResult returns r with its references to blobs turned into URLs.
func PublicResult(r call.Result, ref results.Ref, url BlobURL) call.Result {
	r.Content = PublicParts(r.Content, ref, url)
	r.Extra = PublicParts(r.Extra, ref, url)
	return r
}
