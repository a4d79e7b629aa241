package dispatch

import (
	"context"
	"strconv"
	"strings"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
)

// Caller is who a request comes from, as whoever let it in has decided. Doors
// that share a listener share its guard, and learn from it by [CallerOf].
type Caller struct {
	// Tenant is whose calls the request may see and make.
	Tenant string
	// Operator says that the request may see the fleet itself, beside its
	// tenant's calls: the workers, for one.
	Operator bool
	// BlobURL makes URLs of blobs that the client can fetch.
	BlobURL BlobURL
}

type callerKey struct{}

// WithCaller returns a context that holds c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller that ctx holds. Without one it is the zero
// Caller, whose empty tenant no call is valid with: a door that was mounted
// without a guard serves nobody.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Blob reads the URL of one of the caller's blobs, as BlobURL writes it, with its
// signature or without, or its path alone. The signature is not looked at: who
// asks is known, and nothing is opened but what its tenant owns.
func (c Caller) Blob(raw string) (blob.ID, bool) {
	bare, _, _ := strings.Cut(raw, "?")
	base, path, found := strings.Cut(bare, "/v1/calls/")
	f := strings.Split(path, "/") // id, blobs, n
	if !found || len(f) != 3 || f[1] != "blobs" {
		return blob.ID{}, false
	}
	key, err := call.ParseKey(f[0])
	if err != nil {
		return blob.ID{}, false
	}
	n, err := strconv.Atoi(f[2])
	if err != nil || n < 0 || strconv.Itoa(n) != f[2] {
		return blob.ID{}, false
	}
	id := blob.ID{Tenant: c.Tenant, Key: key, N: n}
	if base == "" {
		return id, true
	}
	if c.BlobURL == nil {
		return blob.ID{}, false
	}
	ours, _, _ := strings.Cut(c.BlobURL(id), "?")
	return id, bare == ours
}
