package chaos

import (
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// answer is what the client of one call saw.
type answer struct {
	// results counts the results in the one stream that had most of them.
	results int
	// kind is that of the last result; differs says that another had another.
	kind    call.Kind
	differs bool
	// err is why the client gave up; nil when the run came to its end.
	err error
	// tries is how often a dispatcher was asked.
	tries int
	// accepted is how long the client had to wait until it was told that its
	// call was taken; negative when it was told nothing but the result.
	accepted time.Duration
}

// verdict counts the broken promises.
type verdict struct {
	lost, duplicates, restarted, wrongKind, orphans int
	// details are sentences, one for each.
	details []string
}

// kept says that no promise was broken.
func (v *verdict) kept() bool {
	return v.lost+v.duplicates+v.restarted+v.wrongKind+v.orphans == 0
}

func (v *verdict) String() string {
	return fmt.Sprintf("lost=%d duplicate_results=%d nonidempotent_restarted=%d wrong_kind=%d orphans=%d",
		v.lost, v.duplicates, v.restarted, v.wrongKind, v.orphans)
}

// note counts one broken promise.
func (v *verdict) note(count *int, format string, args ...any) {
	*count++
	v.details = append(v.details, fmt.Sprintf(format, args...))
}

// judge compares what was asked with what the client saw, the log holds and the
// ledger witnesses.
func (v *verdict) judge(a asked, seen answer, l logged, w witness) {
	about := fmt.Sprintf("%s (%s, wanted %q): log %+v, ledger %+v, client saw %d of kind %q (differs: %t, error: %v)",
		a.id, a.tool, a.want, l, w, seen.results, seen.kind, seen.differs, seen.err)
	switch {
	case l.results == 0 || seen.err != nil || seen.results == 0:
		v.note(&v.lost, "lost: %s", about)
	case l.results > 1 || seen.results > 1 || seen.differs || seen.kind != l.kind:
		v.note(&v.duplicates, "more than one result: %s", about)
	default:
		if why := wrong(a, l, w); why != "" {
			v.note(&v.wrongKind, "%s: %s", why, about)
		}
	}
	if !a.idempotent && w.starts > 1 {
		v.note(&v.restarted, "started again: %s", about)
	}
}

// wrong says why the kind of a result is not what the table of ends asks for,
// given what has happened; empty when it is.
func wrong(a asked, l logged, w witness) string {
	switch l.kind {
	case a.want:
		return unsupported(l, w)
	case call.KindInterrupted:
		if a.idempotent || !l.started {
			return "interrupted, but it may be repeated or never started"
		}
		return ""
	case call.KindSandboxFailed, call.KindInternal:
		switch {
		case l.attempts < call.MaxAttempts:
			return "given up before its attempts were spent"
		case !a.idempotent && (l.started || w.starts > 0):
			return "given up after a start that may not be repeated, and not interrupted"
		}
		return ""
	}
	return fmt.Sprintf("ended as %q", l.kind)
}

// unsupported says why a result that was wanted is not borne out by the
// witnesses; empty when it is.
func unsupported(l logged, w witness) string {
	switch call.EndOf(l.kind).Status {
	case call.StatusSucceeded:
		if w.starts == 0 || w.ends == 0 || !l.started {
			return "succeeded without having run to its end"
		}
	case call.StatusCancelled:
		if !l.cancelled {
			return "cancelled by nobody"
		}
	case call.StatusRefused:
		if w.starts > 0 || l.started {
			return "refused and run"
		}
	default:
		ran := w.starts > 0 && l.started
		if unrun := l.kind == call.KindExpired; ran == unrun {
			return "ended as if it had run, or as if it had not"
		}
	}
	return ""
}
