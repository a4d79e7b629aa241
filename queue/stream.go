package queue

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The streams. CALLS holds what waits, READY what may run now; the scheduler
// (package keeper) moves jobs from the one to the other.
const (
	CallsStream = "TOOLFLEET_CALLS"
	ReadyStream = "TOOLFLEET_READY"

	// toolfleet.calls.<class>.<priority>.<tenant>.<tool>.<key>
	callsPrefix = "toolfleet.calls."
	// toolfleet.ready.<class>.<key>
	readyPrefix = "toolfleet.ready."
)

// headerMaxInFlight carries a spec's maxInFlight beside a job in CALLS, so that
// the scheduler need not read jobs to know which may run.
const headerMaxInFlight = "Toolfleet-Max-In-Flight"

// The limits of a consumer; the server's own are too small for a fleet.
const (
	maxAckPending = 10_000
	maxWaiting    = 4096
)

// callsConfig is kept by limits, not as a work queue: nobody is handed a job
// from here and acknowledges it. The scheduler reads what there is beside those
// who write, which a work queue forbids, and deletes what it has moved.
func callsConfig(o Options) jetstream.StreamConfig {
	c := workQueue(o, CallsStream, "Toolfleet: calls that wait", callsPrefix+"*.*.*.*.*")
	c.Retention = jetstream.LimitsPolicy
	return c
}

func readyConfig(o Options) jetstream.StreamConfig {
	return workQueue(o, ReadyStream, "Toolfleet: calls that may run now", readyPrefix+"*.*")
}

// workQueue is a stream that takes one message a subject, keeps it until it is
// acknowledged, and refuses a second one meanwhile.
func workQueue(o Options, name, description, subject string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 name,
		Description:          description,
		Subjects:             []string{subject},
		Retention:            jetstream.WorkQueuePolicy,
		Storage:              jetstream.FileStorage,
		Discard:              jetstream.DiscardNew,
		MaxMsgsPerSubject:    1,
		DiscardNewPerSubject: true,
		MaxBytes:             o.MaxBytes,
		MaxMsgs:              -1,
		// Reads go to the leader: they decide what a refused push meant.
		AllowDirect: false,
		// The server insists on a window. No message of ours has an id: it is
		// the subject that keeps a job from being there twice.
		Duplicates: time.Second,
		Replicas:   o.Replicas,
	}
}

// consumerConfig is the one consumer of a class.
func consumerConfig(class string, o Options) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       consumerName(class),
		Description:   "Toolfleet: the workers of class " + class,
		FilterSubject: readyPrefix + class + ".*",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       o.AckWait,
		MaxAckPending: maxAckPending,
		MaxWaiting:    maxWaiting,
		// Attempts are counted in the log. A limit here would leave a message
		// that is delivered to nobody and stays.
		MaxDeliver: -1,
		// A pull asks for one message and 30 s at most.
		MaxRequestBatch:   1,
		MaxRequestExpires: pullExpiry,
	}
}

func consumerName(class string) string { return "ready-" + class }

// apiPrefix is where the server's JetStream API is.
func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return o.APIPrefix + "."
	}
	return jetstream.DefaultAPIPrefix
}
