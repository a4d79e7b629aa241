package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// Upload is a file that a call is to bring.
type Upload struct {
	Name string
	// MimeType may be empty; then the bytes tell.
	MimeType string
	// Data are the bytes, unless they are in a blob already.
	Data []byte
	// Blob is a blob of the call's tenant, such as a part of an earlier result.
	// It is referred to and not copied: a call that finds it gone fails.
	Blob *blob.ID
	// Attached says that the file only came along with a conversation; see
	// [call.File]. It is left out when its blob is gone, or when the attached
	// files would have more than Room bytes together.
	Attached bool
	Room     int64
}

// describe makes the files of a call out of uploads, and returns those that they
// stand for. Bytes get the blob that they will have.
func (d *Dispatcher) describe(ctx context.Context, c call.Call, uploads []Upload) ([]call.File, []Upload, error) {
	if len(uploads) > call.MaxFiles {
		return nil, nil, fmt.Errorf("%w: a call may bring %d files, and this one has %d", ErrMalformed, call.MaxFiles, len(uploads))
	}
	var (
		files    []call.File
		taken    []Upload
		attached int64
	)
	for i, u := range uploads {
		f := call.File{Name: u.Name, MimeType: u.MimeType, Attached: u.Attached}
		var err error
		if u.Blob != nil {
			err = d.refer(ctx, c, &f, *u.Blob)
		} else {
			f.MimeType = cmp.Or(f.MimeType, agui.MimeTypeOf(u.Data))
			f.Size, f.Digest = int64(len(u.Data)), call.Digest(string(u.Data))
			f.Blob = blob.ID{Tenant: c.Tenant, Key: c.Key(), N: 1 + len(files)}.String()
		}
		switch {
		case errors.Is(err, blob.ErrNotFound) && u.Attached:
			continue // a conversation outlives what it shows
		case errors.Is(err, blob.ErrNotFound):
			return nil, nil, fmt.Errorf("%w: files[%d]: there is no such blob, or no more", ErrMalformed, i)
		case err != nil:
			return nil, nil, classify(ctx, err)
		case u.Attached && f.Size > u.Room-attached:
			continue
		case u.Attached:
			attached += f.Size
		}
		files, taken = append(files, f), append(taken, u)
	}
	return files, taken, nil
}

// refer makes f the file that a blob is.
func (d *Dispatcher) refer(ctx context.Context, c call.Call, f *call.File, id blob.ID) error {
	if id.Tenant != c.Tenant {
		return blob.ErrNotFound
	}
	info, err := d.Blobs.Stat(ctx, id)
	if err != nil {
		return err
	}
	f.MimeType = cmp.Or(f.MimeType, info.MimeType)
	f.Size, f.Digest, f.Blob = info.Size, info.Digest, id.String()
	return nil
}

// uploaded is how many bytes of uploads have no blob yet.
func uploaded(uploads []Upload) (n int64) {
	for _, u := range uploads {
		n += int64(len(u.Data))
	}
	return n
}

// brings tells whether any of uploads has no blob yet; it may have no bytes either.
func brings(uploads []Upload) bool {
	return slices.ContainsFunc(uploads, func(u Upload) bool { return u.Blob == nil })
}

// keep writes the bytes of uploads to their blobs.
func (d *Dispatcher) keep(ctx context.Context, job *catalog.Job, uploads []Upload) error {
	for i, u := range uploads {
		if u.Blob != nil {
			continue
		}
		f := job.Call.Files[i]
		id := blob.ID{Tenant: job.Call.Tenant, Key: job.Call.Key(), N: 1 + i}
		switch _, err := d.Blobs.Put(ctx, id, f.MimeType, u.Data); {
		case errors.Is(err, blob.ErrOther):
			return ErrConflict // another submit of these ids was on its way
		case err != nil:
			return fmt.Errorf("dispatch: keep file %q: %w", f.Name, err)
		}
		d.Metrics.BlobPut(int64(len(u.Data)))
	}
	return nil
}
