package results

// OnResult has f called for every call whose result comes from now on, in the
// order of the log, until stop is called. f must neither block nor call the
// Log. The process must follow the kind "result".
func (l *Log) OnResult(f func(Ref)) (stop func()) {
	fan := &l.fan
	fan.mu.Lock()
	defer fan.mu.Unlock()
	if fan.ended == nil {
		fan.ended = map[*func(Ref)]struct{}{}
	}
	fan.ended[&f] = struct{}{}
	return func() {
		fan.mu.Lock()
		defer fan.mu.Unlock()
		delete(fan.ended, &f)
	}
}

// HasEnded reports whether the index knows of a result of the call. It asks the
// server nothing, so it may be a moment late, and it forgets calls that ended
// long ago (see [Log.List]).
func (l *Log) HasEnded(ref Ref) bool {
	x := &l.index
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.find(ref)
	return r != nil && r.result
}
