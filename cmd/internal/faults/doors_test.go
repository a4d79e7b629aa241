package faults

import (
	"math/rand/v2"
	"sync"

	"github.com/toolfleet/toolfleet/dispatch"
)

// doors are the dispatchers that a client may meet.
type doors struct {
	mu  sync.Mutex
	all []*part
}

func newDoors(all ...*part) *doors { return &doors{all: all} }

func (d *doors) any() *dispatch.Dispatcher {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all[rand.IntN(len(d.all))].Dispatcher
}

// renew puts a new dispatcher in the place of each, one after the other. An old
// one is stopped under the calls that it waits with.
func (d *doors) renew(f *fleet) {
	for i := range d.all {
		fresh := f.dispatcher()
		d.mu.Lock()
		old := d.all[i]
		d.all[i] = fresh
		d.mu.Unlock()
		old.stop()
	}
}
