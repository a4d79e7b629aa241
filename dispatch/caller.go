package dispatch

import "context"

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
