package queue_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

// TestPain64LettersOnThreeServers: servers have lost what they were to keep of
// messages that they stopped to deliver. Here no server decides: the letter is
// written by whoever ends the call, while the job is in the queue. Three write
// each of these at once, through three servers, while the stream's leader
// changes, and every letter is there, once.
func TestPain64LettersOnThreeServers(t *testing.T) {
	var queues []*queue.Queue
	contexts := natsdtest.Cluster(t)
	for _, js := range contexts {
		queues = append(queues, open(t, js, queue.Options{Replicas: 3}))
	}
	const calls = 12
	var filed [calls]atomic.Int32
	var g errgroup.Group
	for n := range calls {
		l := letter(fmt.Sprint("c", n))
		if n%6 == 4 {
			g.Go(func() error {
				_, err := contexts[0].Conn().RequestWithContext(t.Context(), "$JS.API.STREAM.LEADER.STEPDOWN."+queue.DeadStream, nil)
				return err
			})
		}
		for _, q := range queues {
			g.Go(func() error {
				ok, err := q.Dead().File(t.Context(), l)
				if ok {
					filed[n].Add(1)
				}
				return err
			})
		}
		if n%3 == 2 { // not all at once: the leader is to change in the middle
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, q := range queues {
		if n, err := q.Dead().Len(t.Context()); n != calls || err != nil {
			t.Errorf("through server %d there are %d letters of %d, %v", i, n, calls, err)
		}
	}
	for n := range calls {
		key := letter(fmt.Sprint("c", n)).Job.Call.Key()
		if filed[n].Load() > 1 {
			t.Errorf("letter %d was filed %d times", n, filed[n].Load())
		}
		if err := queues[0].Dead().Drop(t.Context(), "default", key); err != nil {
			t.Errorf("letter %d: %v", n, err)
		}
		if err := queues[1].Dead().Drop(t.Context(), "default", key); !errors.Is(err, queue.ErrNoLetter) {
			t.Errorf("letter %d is there twice: %v", n, err)
		}
	}
}
