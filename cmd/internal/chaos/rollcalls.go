package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// calmBehaviours are those of calls that nothing is to disturb: short ones, ones
// that a stop has to wait for, and some that fail by themselves.
var calmBehaviours = []behaviour{
	{weight: 60, work: sleep(0.05, 0.8)},
	{weight: 25, work: sleep(2, 6)},
	{weight: 8, want: call.KindToolError, work: say("sleep 0.3; echo this went wrong >&2; exit 3")},
	{weight: 7, want: call.KindCrashed, work: say("sleep 0.3; kill -9 $$")},
}

// doors are the ways by which a roll's calls are made, in turn.
var doors = []door{byStream, byWait, byAGUI, byVisits}

// judgeCalm notes an end that only a fault explains: judge takes it for one that
// may be, and here was none.
func (v *verdict) judgeCalm(a asked, l logged) {
	if l.results == 1 && l.kind != a.want {
		v.note(&v.wrongKind, "%s (%s) was disturbed by a restart, and wanted %q: log %+v", a.id, a.tool, a.want, l)
	}
}

// wellEvery is how often a process is asked whether it is well.
const wellEvery = 100 * time.Millisecond

// awaitWell waits until every process says that it takes part.
func (f *fleet) awaitWell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	for _, p := range f.all() {
		for {
			err := well(ctx, p.page)
			if err == nil {
				break
			}
			if !pause(ctx, wellEvery) {
				return fmt.Errorf("chaos: %s is not well: %w", p.name, err)
			}
		}
	}
	return nil
}

// well asks a page whether all is well.
func well(ctx context.Context, page string) error {
	body, err := read(ctx, page)
	if err != nil {
		return fmt.Errorf("%w: %.200s", err, body)
	}
	return nil
}

// maxPage bounds a page that is read.
const maxPage = 8 << 20

// read reads a page, and fails unless it comes with HTTP 200.
func read(ctx context.Context, page string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxPage))
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return body, err
}
