package results

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
)

// Stream is the name of the stream that holds every log.
const Stream = "TOOLFLEET_EVENTS"

// The kinds of entry; a kind is the last token of a subject.
const (
	KindAdmit    = "admit"
	KindState    = "state"
	KindProgress = "progress"
	KindClaim    = "claim"
	KindStart    = "start"
	KindCancel   = "cancel"
	KindResult   = "result"
)

// shortLife is how long states, progress and claims are kept. They tell how a
// call went; what it was and how it ended stays for [MaxAge].
const shortLife = 24 * time.Hour

// maxConsumers is the stream's limit. A process needs one consumer, however
// many clients follow: replay reads without any.
const maxConsumers = 1024

// streamConfig is the whole configuration; what is not said here is pinned by
// a test as the server fills it in.
func streamConfig(o Options) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:         Stream,
		Description:  "Toolfleet: the log of every call",
		Subjects:     []string{prefix + "*.*.*"},
		Retention:    jetstream.LimitsPolicy,
		Storage:      jetstream.FileStorage,
		Discard:      jetstream.DiscardNew,
		MaxAge:       MaxAge,
		MaxBytes:     o.MaxBytes,
		MaxMsgs:      -1,
		MaxConsumers: maxConsumers,
		AllowDirect:  true,
		AllowMsgTTL:  true,
		DenyPurge:    true,
		// The server insists on a window when none is given, and takes 2
		// minutes. No message of ours has an id, so it costs nothing and must
		// not look like a promise.
		Duplicates: time.Second,
		Replicas:   o.Replicas,
	}
}

// openStream creates or checks the stream, or binds to it.
func openStream(ctx context.Context, js jetstream.JetStream, o Options) (jetstream.Stream, error) {
	if o.Bind {
		return js.Stream(ctx, Stream)
	}
	return js.CreateOrUpdateStream(ctx, streamConfig(o))
}

const prefix = "toolfleet.events."

// subject names the place of one kind of entry in a log.
func (r Ref) subject(kind string) string {
	return prefix + r.Tenant + "." + string(r.Key) + "." + kind
}

// check keeps anything that is no tenant or no key out of a subject.
func (r Ref) check() error {
	if !call.ValidTenant(r.Tenant) {
		return fmt.Errorf("results: %q is not a tenant", r.Tenant)
	}
	if _, err := call.ParseKey(string(r.Key)); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// parseSubject is the inverse of [Ref.subject].
func parseSubject(s string) (Ref, string, bool) {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return Ref{}, "", false
	}
	f := strings.Split(rest, ".")
	if len(f) != 3 {
		return Ref{}, "", false
	}
	return Ref{Tenant: f[0], Key: call.Key(f[1])}, f[2], true
}
