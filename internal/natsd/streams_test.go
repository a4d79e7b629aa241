package natsd_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

var update = flag.Bool("update", false, "write the golden file")

const golden = "testdata/streams.golden.json"

// pinned is one stream as the server reports it, with its durable consumers.
type pinned struct {
	Stream    jetstream.StreamConfig
	Consumers []jetstream.ConsumerConfig `json:",omitempty"`
}

// TestEveryStreamIsPinned opens everything that the fleet keeps in JetStream
// and compares what the server made of it with the golden file, defaults
// included. A change here is a change for every fleet that runs: it has to
// work as an update of what is there, beside older dispatchers and workers.
func TestEveryStreamIsPinned(t *testing.T) {
	js := natsdtest.JetStream(t)
	// Twice, since the second process of a fleet finds everything there.
	for range 2 {
		openAll(t, js)
	}
	var all []pinned
	for s := range js.ListStreams(t.Context()).Info() {
		p := pinned{Stream: s.Config}
		// What the server says of itself changes with its version.
		p.Stream.Metadata = nil
		stream, err := js.Stream(t.Context(), s.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		for c := range stream.ListConsumers(t.Context()).Info() {
			c.Config.Metadata = nil
			p.Consumers = append(p.Consumers, c.Config)
		}
		all = append(all, p)
	}
	got, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("streams are not what the golden file says (write it anew with -update):\n%s", diff)
	}
}

func openAll(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	_, logErr := results.Open(t.Context(), js, results.Options{})
	_, registryErr := queue.OpenRegistry(t.Context(), js, queue.Options{})
	_, dispatchersErr := queue.OpenDispatchers(t.Context(), js, queue.Options{})
	_, blobErr := blob.Open(t.Context(), js, blob.Options{})
	q, err := queue.Open(t.Context(), js, queue.Options{})
	for _, err := range []error{logErr, registryErr, dispatchersErr, blobErr, err} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := q.Lead(ctx, "me", func(context.Context) { cancel() }); err != nil { // makes the bucket
		t.Fatal(err)
	}
	if _, err := q.Depth(t.Context(), queue.DefaultClass); err != nil { // makes the consumer
		t.Fatal(err)
	}
}
