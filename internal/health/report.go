package health

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Finding is what a check has found.
type Finding struct {
	Name string `json:"name"`
	// Problem says what is wrong, and what to do; empty means nothing.
	Problem string `json:"problem,omitempty"`
}

// Report is what the checks of a process have found, in their order.
type Report []Finding

// With is r and one finding more; a nil error is a check that is passed.
func (r Report) With(name string, err error) Report {
	f := Finding{Name: name}
	if err != nil {
		f.Problem = err.Error()
	}
	return append(r, f)
}

// Err says everything that is wrong; nil means that the process is ready.
func (r Report) Err() error {
	var words []string
	for _, f := range r {
		if f.Problem != "" {
			words = append(words, f.Name+": "+f.Problem)
		}
	}
	if words == nil {
		return nil
	}
	return errors.New(strings.Join(words, "; "))
}

// Passed reports whether the check of that name was passed.
func (r Report) Passed(name string) bool {
	return slices.Contains(r, Finding{Name: name})
}

// Page answers a probe: 200, or 503 when something is wrong, with a line for each
// check in the form that Kubernetes' own programs have.
func Page(report func() Report) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r := report()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		last := "ok"
		if r.Err() != nil {
			last = "not ready"
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		for _, f := range r {
			if f.Problem == "" {
				_, _ = fmt.Fprintf(w, "[+]%s ok\n", f.Name)
				continue
			}
			_, _ = fmt.Fprintf(w, "[-]%s failed: %s\n", f.Name, strings.Join(strings.Fields(f.Problem), " "))
		}
		_, _ = fmt.Fprintln(w, last)
	})
}
