package worker

import (
	"context"
	"encoding/base64"
	"encoding/json"
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
	// has fewer: each leaves a part of leastRoom at the most in the event.
	blobsPerAttempt = 10_000
	// eventRoom is the space in an event for everything that is not a part.
	eventRoom = 64 << 10
	// leastRoom is the space that what stands for a part in a blob may need.
	leastRoom = 8 << 10
	// smallMember bounds the id and the metadata that such a part keeps.
	smallMember = 1 << 10
	// maxMimeType bounds the type of a blob; what is longer names none.
	maxMimeType = 255
)

// fit moves what is too large for an event into blobs: media becomes a url
// source, a text keeps its head and gets a document with the whole. Blobs are
// numbered by the attempt and their order in it: a blob is written once, and
// another attempt may say something else.
//
// A result of more parts than an event can hold keeps the first, and the rest
// becomes one document of JSON that lists them.
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
	lost bool
}

func (f *fitter) parts(ctx context.Context, parts []agui.Part) []agui.Part {
	var out []agui.Part
	keep := func(p agui.Part) {
		f.room -= weight(p)
		out = append(out, p)
	}
	for i, p := range parts {
		w := weight(p)
		if w <= blob.InlinePart && w <= f.room-leastRoom {
			keep(p)
			continue
		}
		full := w <= leastRoom || f.room < leastRoom
		move := f.offload
		if full {
			move = func(ctx context.Context, _ agui.Part) ([]agui.Part, error) { return f.rest(ctx, parts[i:]) }
		}
		moved, err := move(ctx, p)
		if err != nil {
			f.a.logger.Error("a part of the result could not be kept", "type", p.Type, "error", err)
			f.lost = true
		}
		for _, q := range moved {
			keep(q)
		}
		if full {
			break
		}
	}
	return out
}

// rest writes all that the event has no room for to one blob.
func (f *fitter) rest(ctx context.Context, parts []agui.Part) ([]agui.Part, error) {
	data, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("worker: encode the rest of a result: %w", err)
	}
	list, err := f.put(ctx, agui.PartDocument, "application/json", data)
	if err != nil {
		return nil, err
	}
	return []agui.Part{list}, nil
}

// offload writes a part to a blob and returns the parts that stand for it,
// which may be fewer when it fails.
func (f *fitter) offload(ctx context.Context, p agui.Part) ([]agui.Part, error) {
	if p.Type == agui.PartText {
		cut := min(textHead, max(0, f.room/8), len(p.Text))
		head := likeness(p, agui.Text(strings.ToValidUTF8(p.Text[:cut], "")))
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
	return []agui.Part{likeness(p, kept)}, nil
}

// likeness gives a part that stands for p what p has beside its content, as
// far as it is small.
func likeness(p, stand agui.Part) agui.Part {
	if len(p.ID) <= smallMember {
		stand.ID = p.ID
	}
	if len(p.Metadata) <= smallMember {
		stand.Metadata = p.Metadata
	}
	return stand
}

func (f *fitter) put(ctx context.Context, partType, mimeType string, data []byte) (agui.Part, error) {
	if len(mimeType) > maxMimeType {
		mimeType = "application/octet-stream"
	}
	id := f.a.nextBlob()
	// A store that is away is waited for, as the log is: the parts are the result.
	_, err := f.a.Blobs.Put(ctx, id, mimeType, data)
	for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		_, err = f.a.Blobs.Put(ctx, id, mimeType, data)
	}
	if err != nil {
		return agui.Part{}, err
	}
	f.a.Metrics.BlobPut(int64(len(data)))
	return agui.Media(partType, agui.Source{Type: agui.SourceURL, Value: id.String(), MimeType: mimeType}), nil
}

// nextBlob is the id of the attempt's next blob.
func (a *attempt) nextBlob() blob.ID {
	a.blobs++
	return blob.ID{Tenant: a.ref.Tenant, Key: a.ref.Key, N: a.n*blobsPerAttempt + a.blobs}
}

// weight is how many bytes p takes in an event, its comma included. What is
// larger than any part in an event is not encoded to be measured.
func weight(p agui.Part) int {
	n := len(p.ID) + len(p.Text) + len(p.Metadata)
	if s := p.Source; s != nil {
		n += len(s.Value) + len(s.MimeType)
	}
	if n > blob.InlinePart {
		return n
	}
	data, err := json.Marshal(p)
	if err != nil {
		return n // Finish says what is wrong with it
	}
	return len(data) + 1
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
