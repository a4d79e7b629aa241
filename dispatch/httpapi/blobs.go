package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/toolfleet/toolfleet/blob"
)

func (s *Server) registerBlobs(api huma.API) {
	binary := map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
	huma.Register(api, huma.Operation{
		OperationID: "getBlob", Method: http.MethodGet, Path: "/v1/calls/{id}/blobs/{n}", Tags: tagCalls,
		Summary:     "Fetch the bytes of a part that is too large for an event",
		Description: "Number 0 is the arguments of the call. Takes a token, or the signature of a URL that stands in a result. Range and If-None-Match are honoured.",
		Responses: map[string]*huma.Response{
			"200": {Description: "The bytes, as an attachment.", Content: binary},
			"206": {Description: "The range.", Content: binary},
			"304": {Description: "The client has them."},
		},
	}, s.getBlob)
}

type blobInput struct {
	ID        string `path:"id" doc:"Id of the call."`
	N         string `path:"n" doc:"Number of the blob."`
	Tenant    string `query:"tenant" doc:"Of a signed URL."`
	Expires   string `query:"expires" doc:"Of a signed URL."`
	Signature string `query:"signature" doc:"Of a signed URL."`
}

// getBlob is GET /v1/calls/{id}/blobs/{n}. The guard has decided the tenant,
// by token or by signature.
func (s *Server) getBlob(ctx context.Context, in *blobInput) (*huma.StreamResponse, error) {
	ref, err := refOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	n, err := blobNumber(in.N)
	if err != nil {
		return nil, problem(http.StatusNotFound, "There is no such blob.")
	}
	id := blob.ID{Tenant: ref.Tenant, Key: ref.Key, N: n}
	info, err := s.config.Dispatcher.Blobs.Stat(ctx, id)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return nil, problem(http.StatusNotFound, "There is no such blob, or no more.")
	case err != nil:
		return nil, s.fail(ctx, fmt.Errorf("httpapi: blob %s: %w", id, err))
	}
	b := &blobReader{ctx: ctx, store: s.config.Dispatcher.Blobs, id: id, size: info.Size}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer b.close()
		r, w := humago.Unwrap(hc)
		h := w.Header()
		h.Set("Content-Type", safeType(info.MimeType))
		h.Set("Content-Disposition", disposition(or(info.Name, fmt.Sprintf("%s-%d", ref.Key, n))))
		h.Set("ETag", `"`+info.Digest+`"`)
		h.Set("Cache-Control", "private, max-age=3600, immutable")
		http.ServeContent(w, r, "", time.Time{}, b)
		s.config.Metrics.BlobGot(b.sent)
	}}, nil
}

// safeType is the type that a blob is served with. It came from inside a
// sandbox; what does not parse is bytes. The headers keep a browser from
// running any type: attachment, nosniff, a sandboxing policy.
func safeType(mimeType string) string {
	t, params, err := mime.ParseMediaType(mimeType)
	if err != nil {
		return "application/octet-stream"
	}
	if t = mime.FormatMediaType(t, params); t == "" {
		return "application/octet-stream"
	}
	return t
}

// disposition keeps a browser from showing what it fetched. The name came from
// inside a sandbox, and the header's writer encodes what is not plain; what a
// system could take for a path, or for nothing, is no name.
func disposition(name string) string {
	name = strings.Trim(strings.NewReplacer("/", "_", `\`, "_").Replace(name), ". ")
	if d := mime.FormatMediaType("attachment", map[string]string{"filename": name}); d != "" && name != "" {
		return d
	}
	return "attachment"
}

// blobReader makes a blob seekable for http.ServeContent, which knows ranges
// and conditions. A seek costs nothing until something is read, and then the
// store skips to the place.
type blobReader struct {
	ctx   context.Context // the request's, for io.Reader has none
	store *blob.Store
	id    blob.ID

	size   int64
	offset int64
	body   io.ReadCloser // at offset, or nil
	sent   int64
}

// Read implements io.Reader.
func (b *blobReader) Read(p []byte) (int, error) {
	if b.offset >= b.size {
		return 0, io.EOF
	}
	if b.body == nil {
		_, body, err := b.store.Get(b.ctx, b.id, b.offset)
		if err != nil {
			return 0, err
		}
		b.body = body
	}
	n, err := b.body.Read(p)
	b.offset += int64(n)
	b.sent += int64(n)
	return n, err
}

// Seek implements io.Seeker.
func (b *blobReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.offset
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, errors.New("httpapi: seek before the beginning of a blob")
	}
	if offset != b.offset {
		b.close()
		b.offset = offset
	}
	return offset, nil
}

// close ends the reading. Nothing was written, so an error costs nothing.
func (b *blobReader) close() {
	if b.body != nil {
		_ = b.body.Close()
		b.body = nil
	}
}
