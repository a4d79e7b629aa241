package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

func TestDispatchers(t *testing.T) {
	js := natsdtest.JetStream(t)
	d, err := queue.OpenDispatchers(t.Context(), js, queue.Options{AckWait: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), queue.DispatchersBucket)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := kv.Watch(t.Context(), "a", jetstream.UpdatesOnly())
	if err != nil {
		t.Fatal(err)
	}
	changes := watch.Updates()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx, "a", func() queue.DispatcherInfo {
			return queue.DispatcherInfo{ID: "host/1", Version: "v1", Problem: string(make([]byte, 4096))}
		}, func(err error) { t.Errorf("a beat failed: %v", err) })
	}()
	// It outlives its entry's life by beating again.
	for range 4 {
		if e := get(t, changes, "a beat"); e == nil || e.Operation() != jetstream.KeyValuePut {
			t.Fatalf("got %v", e)
		}
	}
	list, err := d.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "host/1" || list[0].Version != "v1" || time.Since(list[0].Beat).Abs() > time.Minute {
		t.Errorf("got %+v, %v", list, err)
	}
	if n := len(list[0].Problem); n > 1024 {
		t.Errorf("an entry has a problem of %d bytes", n)
	}
	stop()
	get(t, done, "the end of Run")
	if list, err := d.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("one that has left is listed: %+v, %v", list, err)
	}
	// What nobody can read is somebody all the same.
	if _, err := kv.Put(t.Context(), "b", []byte("from another time")); err != nil {
		t.Fatal(err)
	}
	if list, err := d.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != "b" {
		t.Errorf("got %+v, %v", list, err)
	}
}

// A dispatcher that cannot be listed says so once, goes on, and says when it is
// listed again.
func TestADispatcherThatCannotBeListed(t *testing.T) {
	js := natsdtest.JetStream(t)
	o := queue.Options{AckWait: 3 * time.Second}
	d, err := queue.OpenDispatchers(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(t.Context(), queue.DispatchersBucket); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	told, done := make(chan error, 10), make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx, "a", func() queue.DispatcherInfo { return queue.DispatcherInfo{ID: "a"} }, func(err error) { told <- err })
	}()
	if err := get(t, told, "word of a failure"); err == nil {
		t.Error("a beat without a bucket went well")
	}
	if _, err := queue.OpenDispatchers(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	if err := get(t, told, "word that it is mended"); err != nil {
		t.Error(err)
	}
	stop()
	get(t, done, "the end of Run")
	if len(told) > 0 {
		t.Errorf("more was told: %v", <-told)
	}
}

func TestLeader(t *testing.T) {
	q, err := queue.Open(t.Context(), natsdtest.JetStream(t), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := q.Leader(t.Context()); err != nil || id != "" {
		t.Errorf("before the first election %q leads: %v", id, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	elected, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- q.Lead(ctx, "host/1", func(ctx context.Context) { close(elected); <-ctx.Done() })
	}()
	get(t, elected, "the election")
	if id, err := q.Leader(t.Context()); err != nil || id != "host/1" {
		t.Errorf("%q leads: %v", id, err)
	}
	stop()
	if err := get(t, done, "the end"); err != nil {
		t.Error(err)
	}
	if id, err := q.Leader(t.Context()); err != nil || id != "" {
		t.Errorf("after its end %q leads: %v", id, err)
	}
}

// The last letters come first, of whatever tenant, past those that were dropped.
func TestRecentLetters(t *testing.T) {
	d := open(t, natsdtest.JetStream(t), queue.Options{}).Dead()
	if letters, all, err := d.Recent(t.Context(), 2); err != nil || all != 0 || len(letters) != 0 {
		t.Errorf("of none: %+v, %d, %v", letters, all, err)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		file(t, d, letter(id, func(j *catalog.Job) { j.Call.Tenant, j.Call.Arguments = "tenant-"+id, `{"secret":1}` }))
	}
	gone := letter("c", func(j *catalog.Job) { j.Call.Tenant = "tenant-c" })
	if err := d.Drop(t.Context(), "tenant-c", gone.Job.Call.Key()); err != nil {
		t.Fatal(err)
	}
	letters, all, err := d.Recent(t.Context(), 2)
	if err != nil || all != 3 || len(letters) != 2 {
		t.Fatalf("%+v, %d, %v", letters, all, err)
	}
	for i, tenant := range []string{"tenant-d", "tenant-b"} {
		if c := letters[i].Job.Call; c.Tenant != tenant || c.Arguments != "" {
			t.Errorf("letter %d is of %s, with arguments %q", i, c.Tenant, c.Arguments)
		}
	}
}
