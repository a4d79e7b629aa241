package blob_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// usage follows the store's use until the test ends.
func usage(t *testing.T, s *blob.Store) *blob.Usage {
	t.Helper()
	u := s.Usage()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := u.Run(ctx, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return u
}

// awaitHeld returns when u says that the tenant's blobs hold want.
func awaitHeld(t *testing.T, u *blob.Usage, tenant string, want int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for u.Held(tenant, time.Now()) != want {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s holds %d bytes, want %d", tenant, u.Held(tenant, time.Now()), want)
		}
	}
}

func TestUsage(t *testing.T) {
	js := natsdtest.JetStream(t)
	s := openOn(t, js)
	put := func(tenant string, n, size int) {
		t.Helper()
		id := blob.ID{Tenant: tenant, Key: call.MakeKey(tenant, "t", "s", "c"), N: n}
		if _, err := s.Put(t.Context(), id, "", make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	put("acme", 0, 300_000)
	put("other", 0, 7)
	early := usage(t, s)
	awaitHeld(t, early, "acme", 300_000)
	put("acme", 1, 5)
	put("acme", 1, 5) // the same again holds nothing more
	put("acme", 2, 20)

	late := usage(t, s) // reads what is there, also what comes while it reads
	for _, u := range []*blob.Usage{early, late} {
		awaitHeld(t, u, "acme", 300_025)
		awaitHeld(t, u, "other", 7)
		awaitHeld(t, u, "nobody", 0)
	}

	if at := late.Frees("acme", 26); time.Until(at) < blob.MaxAge-time.Minute || time.Until(at) > blob.MaxAge {
		t.Errorf("25 bytes are left at %s", at)
	}
	if at := late.Frees("acme", 400_000); !at.IsZero() {
		t.Errorf("less than 400,000 bytes are held at %s, and now", at)
	}
	// Another tool deletes what is no more wanted.
	obs, err := js.ObjectStore(t.Context(), blob.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := obs.Delete(t.Context(), "acme/"+string(call.MakeKey("acme", "t", "s", "c"))+"/0"); err != nil {
		t.Fatal(err)
	}
	for _, u := range []*blob.Usage{early, late} {
		awaitHeld(t, u, "acme", 25)
		if held := u.Held("acme", time.Now().Add(blob.MaxAge+time.Minute)); held != 0 {
			t.Errorf("%d bytes are held for ever", held)
		}
	}
}
