package keeper

import (
	"encoding/base32"
	"slices"
	"strings"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/queue"
)

// id is a call's key in 16 bytes: 128 of its 130 bits, which is what there is
// room for when a hundred thousand calls wait.
type id [16]byte

func idOf(key call.Key) (k id) {
	// The last two letters are a byte and two bits, which are dropped. A key was
	// checked by whoever made it.
	_, _ = base32.StdEncoding.WithPadding(base32.NoPadding).Decode(k[:], []byte(strings.ToUpper(string(key))))
	return k
}

// entry is one call. It holds no text: its names are its lane's, and the job
// is where seq says.
type entry struct {
	id    id
	seq   uint64 // in CALLS
	since int64  // when it came there, in seconds
	ready bool   // in READY, or on its way there
	in    *lane
	// prev and next are those before and behind it, while it waits.
	prev, next *entry
}

// lane is the calls of one tenant, tool, class and priority, oldest first.
type lane struct {
	class        *class
	tenant, tool *party
	batch        bool
	first, last  *entry
}

// class finds a class, or makes it.
func (l *line) class(name string) *class {
	if name == "" {
		name = queue.DefaultClass
	}
	c := l.classes[name]
	if c == nil {
		c = &class{name: name, flows: map[string]*flow{}}
		l.classes[name] = c
	}
	return c
}

// partyIn finds a party, or makes it.
func partyIn(parties map[string]*party, name string) *party {
	p := parties[name]
	if p == nil {
		p = &party{name: name}
		parties[name] = p
	}
	return p
}

// place finds the lane of an address, or makes one, which is nobody's turn yet.
func (l *line) place(a queue.Address) *lane {
	c, batch := l.class(a.Class), a.Priority == call.PriorityBatch
	if f := c.flows[a.Tenant]; f != nil {
		for _, ln := range f.lanes {
			if ln.tool.name == a.Tool && ln.batch == batch {
				return ln
			}
		}
	}
	return &lane{class: c, tenant: partyIn(l.tenants, a.Tenant), tool: partyIn(l.tools, a.Tool), batch: batch}
}

// enter makes a call known, neither waiting nor ready.
func (l *line) enter(e *entry, a queue.Address) {
	e.in = l.place(a)
	e.in.tenant.calls++
	e.in.tool.calls++
	l.calls[e.id] = e
}

// forget undoes whatever was done to a call.
func (l *line) forget(e *entry) {
	if e.ready {
		l.stop(e)
	} else if e.waits() {
		l.leave(e)
	}
	delete(l.calls, e.id)
	leaveParty(l.tenants, e.in.tenant)
	leaveParty(l.tools, e.in.tool)
}

func leaveParty(parties map[string]*party, p *party) {
	if p.calls--; p.calls == 0 {
		delete(parties, p.name)
	}
}

// stop counts a call as ready no more.
func (l *line) stop(e *entry) {
	e.ready = false
	e.in.class.ready--
	e.in.tenant.ready--
	e.in.tool.ready--
}

// wait puts a call into its lane, behind all.
func (l *line) wait(e *entry) {
	ln := e.in
	if ln.first == nil {
		ln.first, ln.last = e, e
		l.attach(ln)
	} else {
		e.prev, ln.last.next = ln.last, e
		ln.last = e
	}
	ln.class.waiting++
}

// waits reports whether a call is in its lane.
func (e *entry) waits() bool { return e.prev != nil || e.in.first == e }

// leave takes a call out of its lane.
func (l *line) leave(e *entry) {
	ln := e.in
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		ln.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		ln.last = e.prev
	}
	e.prev, e.next = nil, nil
	ln.class.waiting--
	if ln.first == nil {
		l.detach(ln)
	}
}

// attach gives a lane that has calls its share of the turns.
func (l *line) attach(ln *lane) {
	c := ln.class
	f := c.flows[ln.tenant.name]
	if f == nil {
		f = &flow{tenant: ln.tenant}
		c.flows[ln.tenant.name] = f
		c.ring = append(c.ring, f)
	}
	f.lanes = append(f.lanes, ln)
}

// detach takes a lane without calls out of the turns.
func (l *line) detach(ln *lane) {
	c := ln.class
	f := c.flows[ln.tenant.name]
	f.lanes = slices.DeleteFunc(f.lanes, func(other *lane) bool { return other == ln })
	if len(f.lanes) > 0 {
		return
	}
	delete(c.flows, ln.tenant.name)
	i := slices.Index(c.ring, f)
	c.ring = slices.Delete(c.ring, i, i+1)
	for rank, turn := range c.turn {
		if turn > i {
			turn--
		}
		if turn == len(c.ring) {
			turn = 0
		}
		c.turn[rank] = turn
	}
}
