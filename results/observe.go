package results

import "time"

// Observer is told what the index learns about calls of all tenants: what was
// in the log when it was opened, and then every entry as it comes, whoever
// appended it. Its methods are called one at a time, must not block, and must
// not call the Log.
type Observer interface {
	// Admitted tells of a call, once. at is the server's time, as [Log.Now] is.
	// waits is true when it is to run and, as far as is known, has not begun.
	Admitted(ref Ref, at time.Time, refused, waits bool)
	// Left tells that a call that waited was started, or has ended; once.
	Left(ref Ref)
}

// Observe makes o hear what the index learns. It is to be called before Run,
// once.
func (l *Log) Observe(o Observer) {
	l.index.mu.Lock()
	defer l.index.mu.Unlock()
	l.index.observer = o
}

// observe tells the observer what an entry has changed in a record that, before
// it, was admitted or not and waited or not. The caller holds mu.
func (x *index) observe(r *record, admitted, waited bool) {
	switch {
	case x.observer == nil || r.seq == 0:
	case !admitted:
		x.observer.Admitted(r.ref(), moment(r.admitted), r.refused, r.waits())
	case waited && !r.waits():
		x.observer.Left(r.ref())
	}
}

// waits reports whether the call is to run and has not begun. One that has a
// worker but no start yet, since its sandbox is being made, waits.
func (r *record) waits() bool {
	return r.seq != 0 && !r.refused && !r.result && !r.started()
}

// Waiting is the calls of a class that are to run and that nobody has started.
type Waiting struct {
	Calls int
	// Since is when the oldest of them was admitted.
	Since time.Time
}

// Waiting counts the calls that wait, by class. Like [Log.Due] it knows what Run
// has read; it waits for nothing, and passes over every call that has not ended.
func (l *Log) Waiting() map[string]Waiting {
	x := &l.index
	x.mu.Lock()
	defer x.mu.Unlock()
	type line struct {
		calls  int
		oldest int64
	}
	lines := map[name]line{}
	for _, r := range x.due {
		if !r.waits() {
			continue
		}
		c := lines[r.class]
		if c.calls == 0 || r.admitted < c.oldest {
			c.oldest = r.admitted
		}
		c.calls++
		lines[r.class] = c
	}
	waiting := make(map[string]Waiting, len(lines))
	for class, c := range lines {
		waiting[class.String()] = Waiting{Calls: c.calls, Since: moment(c.oldest)}
	}
	return waiting
}

// Now is the time by the server's clock, by which entries are dated. It goes by
// what the server said when it was last asked, which is half a minute ago at the
// most while [Log.Run] runs and the server can be reached.
func (l *Log) Now() time.Time {
	s := l.fill.last.Load()
	return s.time.Add(time.Since(s.at))
}
