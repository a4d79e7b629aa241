package queue

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestWhenAConsumerIsStuck(t *testing.T) {
	at := func(seconds int, delivered, pending uint64, waiting, acks int) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{
			TimeStamp: time.Unix(int64(seconds), 0), Delivered: jetstream.SequenceInfo{Consumer: delivered},
			NumPending: pending, NumWaiting: waiting, NumAckPending: acks,
		}
	}
	for name, c := range map[string]struct {
		infos []*jetstream.ConsumerInfo
		want  bool
	}{
		"work and takers, nothing delivered": {[]*jetstream.ConsumerInfo{at(0, 5, 1, 1, 0), at(10, 5, 1, 1, 0), at(30, 5, 2, 1, 0)}, true},
		"not for long enough":                {[]*jetstream.ConsumerInfo{at(0, 5, 1, 1, 0), at(29, 5, 1, 1, 0)}, false},
		"something delivered":                {[]*jetstream.ConsumerInfo{at(0, 5, 1, 1, 0), at(20, 6, 1, 1, 0), at(40, 6, 1, 1, 0)}, false},
		"no takers in between":               {[]*jetstream.ConsumerInfo{at(0, 5, 1, 1, 0), at(20, 5, 1, 0, 0), at(40, 5, 1, 1, 0)}, false},
		"no work":                            {[]*jetstream.ConsumerInfo{at(0, 5, 0, 1, 0), at(40, 5, 0, 1, 0)}, false},
		"as many in flight as allowed":       {[]*jetstream.ConsumerInfo{at(0, 5, 1, 1, maxAckPending), at(40, 5, 1, 1, maxAckPending)}, false},
	} {
		d := dog{patience: stuckAfter}
		got := false
		for _, info := range c.infos {
			got = d.stuck(info)
		}
		if got != c.want {
			t.Errorf("%s: stuck = %v", name, got)
		}
	}
}
