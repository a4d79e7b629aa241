package worker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
)

const (
	// textHead is how much of a text that is too large stays as a text part.
	textHead = 32 << 10
	// blobsPerAttempt keeps the numbers of two attempts' blobs apart. A result
	// has fewer parts.
	blobsPerAttempt = 10_000
	// eventRoom is the space in an event for everything that is not a part.
	eventRoom = 64 << 10
)

// fit moves what is too large for an event into blobs: media becomes a url
// source, a text keeps its head and gets a document with the whole. Blobs are
// numbered by the attempt and their order in it: a blob is written once, and
// another attempt may say something else.
//
// It cannot fail: by now the tool has run, and a result without one of its
// parts is better than none. A part that cannot be kept is left out, without a
// placeholder, and the execution says that content was truncated.
func (a *attempt) fit(ctx context.Context, r call.Result) call.Result {
	f := fitter{a: a, room: blob.InlineEvent - eventRoom}
	r.Content = f.parts(ctx, r.Content)
	r.Extra = f.parts(ctx, r.Extra)
	if f.lost && r.Execution != nil {
		r.Execution.Truncated = append(r.Execution.Truncated, "content")
	}
	return r
}

// fitter is the state of one fit.
type fitter struct {
	a    *attempt
	room int // bytes left in the event
	n    int // blobs written
	lost bool
}

func (f *fitter) parts(ctx context.Context, parts []agui.Part) []agui.Part {
	var out []agui.Part
	for _, p := range parts {
		if w := weight(p); w > blob.InlinePart || w > f.room {
			f.n++
			fitted, err := f.offload(ctx, p)
			if err != nil {
				f.a.logger.Error("a part of the result could not be kept", "type", p.Type, "error", err)
				f.lost = true
			}
			for _, q := range fitted {
				f.room -= weight(q)
			}
			out = append(out, fitted...)
			continue
		}
		f.room -= weight(p)
		out = append(out, p)
	}
	return out
}

// offload writes a part to a blob and returns the parts that stand for it,
// which may be fewer when it fails.
func (f *fitter) offload(ctx context.Context, p agui.Part) ([]agui.Part, error) {
	if p.Type == agui.PartText {
		head := p
		head.Text = strings.ToValidUTF8(p.Text[:min(textHead, max(0, f.room/8), len(p.Text))], "")
		whole, err := f.put(ctx, agui.PartDocument, "text/plain; charset=utf-8", []byte(p.Text))
		if err != nil {
			return []agui.Part{head}, err
		}
		return []agui.Part{head, whole}, nil
	}
	if p.Source.Type != agui.SourceData {
		return nil, errors.New("worker: its url or handle is too long")
	}
	data, err := base64.StdEncoding.DecodeString(p.Source.Value)
	if err != nil {
		return nil, fmt.Errorf("worker: its data is not base64: %w", err)
	}
	kept, err := f.put(ctx, p.Type, p.Source.MimeType, data)
	if err != nil {
		return nil, err
	}
	kept.ID = p.ID
	if len(p.Metadata) <= 1<<10 {
		kept.Metadata = p.Metadata
	}
	return []agui.Part{kept}, nil
}

func (f *fitter) put(ctx context.Context, partType, mimeType string, data []byte) (agui.Part, error) {
	id := blob.ID{Tenant: f.a.ref.Tenant, Key: f.a.ref.Key, N: f.a.n*blobsPerAttempt + f.n}
	if _, err := f.a.Blobs.Put(ctx, id, mimeType, data); err != nil {
		return agui.Part{}, err
	}
	f.a.Metrics.BlobPut(int64(len(data)))
	return agui.Media(partType, agui.Source{Type: agui.SourceURL, Value: id.String(), MimeType: mimeType}), nil
}

// weight is about how many bytes p takes in an event. Text may double when it
// is escaped: control characters take six bytes each, so they are counted.
func weight(p agui.Part) int {
	n := 128 + len(p.Metadata)
	if p.Source != nil {
		return n + len(p.Source.Value)
	}
	for i := range len(p.Text) {
		switch c := p.Text[i]; {
		case c < 0x20 || c == '<' || c == '>' || c == '&' || c == 0x7f:
			n += 6
		case c == '"' || c == '\\' || c >= 0x80:
			n += 2
		default:
			n++
		}
	}
	return n
}

// fetch reads a whole blob of at most limit bytes and checks its digest.
func (a *attempt) fetch(ctx context.Context, ref string, limit int64, digest string) ([]byte, error) {
	id, err := blob.Parse(ref)
	if err != nil {
		return nil, err
	}
	if id.Tenant != a.ref.Tenant || id.Key != a.ref.Key {
		return nil, errors.New("worker: the blob belongs to another call")
	}
	_, r, err := a.Blobs.Get(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("worker: blob is longer than %d bytes", limit)
	}
	if digest != "" && call.Digest(string(data)) != digest {
		return nil, errors.New("worker: blob has another digest than the call says")
	}
	return data, nil
}
