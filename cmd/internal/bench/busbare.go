package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// bareBus is JetStream with nothing of ours on it but its configuration: a job
// is published, pulled by whoever is free, answered by a message on the other
// stream and acknowledged. Streams, consumer and payloads are a fleet's own.
type bareBus struct {
	server   *natsd.Server
	nc       *nats.Conn
	js       jetstream.JetStream
	consumer jetstream.Consumer
	job      []byte
	result   []byte
	n        atomic.Int64
}

// openBareBus starts one on a store in dir, after the likeness of a fleet that
// has answered a call.
func openBareBus(ctx context.Context, dir string, fleet *nats.Conn) (b *bareBus, err error) {
	b = &bareBus{}
	defer func() {
		if err != nil {
			b.close()
			err = fmt.Errorf("bench: bare bus: %w", err)
		}
	}()
	if b.server, err = natsd.Start(ctx, natsd.Config{StoreDir: dir}); err != nil {
		return b, err
	}
	if b.nc, err = b.server.Connect(); err != nil {
		return b, err
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		return b, err
	}
	return b, b.copy(ctx, fleet)
}

// copy makes streams and consumer as the fleet has them, and takes over what
// its last call was made of.
func (b *bareBus) copy(ctx context.Context, fleet *nats.Conn) error {
	js, err := jetstream.New(fleet)
	if err != nil {
		return err
	}
	log, err := b.copyStream(ctx, js, results.Stream)
	if err != nil {
		return err
	}
	ready, err := b.copyStream(ctx, js, queue.ReadyStream)
	if err != nil {
		return err
	}
	for into, kind := range map[*[]byte]string{&b.job: results.KindAdmit, &b.result: results.KindResult} {
		msg, err := log.GetLastMsgForSubject(ctx, "toolfleet.events.*.*."+kind)
		if err != nil {
			return err
		}
		*into = msg.Data
	}
	for info := range ready.ListConsumers(ctx).Info() {
		b.consumer, err = b.js.CreateConsumer(ctx, queue.ReadyStream, info.Config)
		return err
	}
	return errors.New("the fleet has no consumer")
}

func (b *bareBus) copyStream(ctx context.Context, from jetstream.JetStream, name string) (jetstream.Stream, error) {
	s, err := from.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	_, err = b.js.CreateStream(ctx, s.CachedInfo().Config)
	return s, err
}

// call is the loop once.
func (b *bareBus) call(ctx context.Context) error {
	id := strconv.FormatInt(b.n.Add(1), 10)
	if _, err := b.js.Publish(ctx, "toolfleet.ready.default."+id, b.job); err != nil {
		return err
	}
	msg, err := b.consumer.Next(jetstream.FetchContext(ctx))
	if err != nil {
		return err
	}
	if _, err := b.js.Publish(ctx, "toolfleet.events.default."+id+".result", b.result); err != nil {
		return err
	}
	return msg.Ack()
}

func (b *bareBus) close() {
	if b.nc != nil {
		b.nc.Close()
	}
	if b.server != nil {
		b.server.Shutdown()
	}
}
