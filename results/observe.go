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

// OldestWaiting is when the oldest call of each class was admitted that is to run
// and that nobody has started. Like [Log.Due] it knows what Run has read; it waits
// for nothing, and passes over every call that has not ended.
func (l *Log) OldestWaiting() map[string]time.Time {
	x := &l.index
	x.mu.Lock()
	defer x.mu.Unlock()
	oldest := map[name]int64{}
	for _, r := range x.due {
		if at, known := oldest[r.class]; r.waits() && (!known || r.admitted < at) {
			oldest[r.class] = r.admitted
		}
	}
	times := make(map[string]time.Time, len(oldest))
	for class, at := range oldest {
		times[class.String()] = moment(at)
	}
	return times
}

// Now is the time by the server's clock, by which entries are dated. It goes by
// what the server said when it was last asked, which is half a minute ago at the
// most while [Log.Run] runs and the server can be reached.
func (l *Log) Now() time.Time {
	s := l.fill.last.Load()
	return s.time.Add(time.Since(s.at))
}
