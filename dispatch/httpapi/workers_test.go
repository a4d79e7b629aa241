package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
	"github.com/toolfleet/toolfleet/queue"
)

// someWorkers stands in for the register.
func someWorkers(c *httpapi.Config) {
	c.Workers = func(context.Context) ([]queue.WorkerInfo, error) {
		return []queue.WorkerInfo{
			{ID: "w2", Class: "default", Slots: 4, Busy: 1, Beat: time.Unix(1, 0)},
			{ID: "w1", Class: "default", Slots: 2, Runtimes: []string{"runc"}, Incarnation: "secret"},
		}, nil
	}
}

func TestWorkersOnLoopback(t *testing.T) {
	d := open(t, dispatchtest.New(t), someWorkers)
	a := d.do("GET", "/v1/workers", "")
	list := decode[struct {
		Workers []struct {
			ID          string
			Slots, Busy int
		}
	}](t, a.Body).Workers
	if a.Status != 200 || len(list) != 2 || list[0].ID != "w1" || list[1].Slots != 4 || list[1].Busy != 1 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if strings.Contains(a.Body, "secret") {
		t.Errorf("an incarnation is nobody's business: %s", a.Body)
	}
}

// A tenant's token shows that tenant's calls, and not the fleet.
func TestWorkersAreForOperators(t *testing.T) {
	d := open(t, dispatchtest.New(t), someWorkers, withTokens(t, "acme "+acme, "ops "+other+" operator"))
	d.wantProblem(d.do("GET", "/v1/workers", ""), http.StatusUnauthorized)
	d.wantProblem(d.do("GET", "/v1/workers", "", "Authorization: Bearer "+acme), http.StatusForbidden)
	if a := d.do("GET", "/v1/workers", "", "Authorization: Bearer "+other); a.Status != 200 {
		t.Errorf("an operator: %d %s", a.Status, a.Body)
	}
	if a := d.do("GET", "/v1/tools", "", "Authorization: Bearer "+other); a.Status != 200 {
		t.Errorf("an operator's tools: %d %s", a.Status, a.Body)
	}
}
