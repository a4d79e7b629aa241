package metrics

import (
	"encoding/hex"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// UnknownTool is the tool label of calls to a tool that the catalogue does not
// have. The name that such a call brought is raw input and never a label.
const UnknownTool = "_unknown"

// CallAdmitted counts a call that was taken. tool is the name of a tool of the
// catalogue, or "" when there is no such tool.
func (m *Metrics) CallAdmitted(tool string) {
	if m == nil {
		return
	}
	m.admitted.WithLabelValues(m.tool(tool)).Inc()
}

// Ended says how one call ended and where its time went.
type Ended struct {
	// Tool is the name of a tool of the catalogue, or "" for a call to a tool
	// that is not there.
	Tool string
	// Tenant is whose call it was.
	Tenant string
	// Kind is the kind of an error result, "" for success; Status is where
	// the call stands. Both are from the closed table in package call.
	Kind, Status string
	// Queue is from admission to the claim, Start from the claim to the start
	// of the tool, Run from there to its end, Publish until the log had taken the
	// result. Zero is a step that did not happen; it is not observed.
	Queue, Start, Run, Publish time.Duration
	// Total is from admission to the result. It is observed always, so that
	// the histogram's count is the number of calls.
	Total time.Duration
	// Stdout and Stderr are how many bytes the tool wrote, kept or not, and
	// Truncated names the streams that lost some.
	Stdout, Stderr int64
	Truncated      []string
	// TraceID is the call's trace, in 32 hexadecimal digits, when it was sampled;
	// the histogram then has it as an exemplar, so that a slow bucket leads to a
	// call that fell into it. "" is none.
	TraceID string
}

// CallEnded counts a call's end. Only who won the call's result calls it, so
// that a call counts once however many tried to end it.
func (m *Metrics) CallEnded(e Ended) {
	if m == nil {
		return
	}
	m.ended.WithLabelValues(m.tool(e.Tool), m.kinds.value(e.Kind), m.kinds.value(e.Status)).Inc()
	m.tenantEnded.WithLabelValues(m.tenants.value(e.Tenant), m.kinds.value(e.Status)).Inc()
	if e.Run > 0 {
		m.toolRun.WithLabelValues(m.tool(e.Tool)).Add(e.Run.Seconds())
		m.tenantRun.WithLabelValues(m.tenants.value(e.Tenant)).Add(e.Run.Seconds())
	}
	m.output.WithLabelValues("stdout").Add(float64(max(0, e.Stdout)))
	m.output.WithLabelValues("stderr").Add(float64(max(0, e.Stderr)))
	for _, stream := range e.Truncated {
		m.truncated.WithLabelValues(m.kinds.value(stream)).Inc()
	}
	for _, s := range [...]struct {
		name string
		took time.Duration
	}{{"queue", e.Queue}, {"start", e.Start}, {"run", e.Run}, {"publish", e.Publish}} {
		if s.took > 0 {
			observe(m.duration.WithLabelValues(s.name), s.took, e.TraceID)
		}
	}
	observe(m.duration.WithLabelValues("total"), max(0, e.Total), e.TraceID)
}

// observe leaves out what is no trace id: client_golang panics on an exemplar
// above 128 characters or of broken UTF-8.
func observe(h prometheus.Observer, took time.Duration, trace string) {
	if e, ok := h.(prometheus.ExemplarObserver); ok && validTrace(trace) {
		e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	h.Observe(took.Seconds())
}

func validTrace(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == 16
}

// LetterFiled counts a call that ended by a fault of the fleet's own and is kept
// as a dead letter.
func (m *Metrics) LetterFiled(tool, kind string) {
	if m == nil {
		return
	}
	m.lettersFiled.WithLabelValues(m.tool(tool), m.kinds.value(kind)).Inc()
}

// SetDeadLetters says how many dead letters there are.
func (m *Metrics) SetDeadLetters(n int) {
	if m == nil {
		return
	}
	m.letters.Set(float64(n))
}

func (m *Metrics) tool(name string) string {
	if name == "" {
		return UnknownTool
	}
	return m.tools.value(name)
}
