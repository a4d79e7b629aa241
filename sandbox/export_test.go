package sandbox

// Reuse makes p take every sandbox for one that may serve another call: the
// pool's rules are tested with agents that run nothing.
func Reuse(p *Pool) { p.reusable = func(*Sandbox) bool { return true } }
