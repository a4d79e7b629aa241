package results_test

import (
	"testing"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

func TestRunsAreCancelledWhereTheyAreStreamed(t *testing.T) {
	server := natsdtest.Start(t)
	here := open(t, natsdtest.JetStreamOn(t, server), results.Options{})
	there := open(t, natsdtest.JetStreamOn(t, server), results.Options{})
	run := results.RunRef{Tenant: "acme", ThreadID: "a thread > * .", RunID: "r"}
	reasons := make(chan string, 1)
	stop, err := here.WatchRun(t.Context(), run, func(reason string) { reasons <- reason })
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []results.RunRef{
		{Tenant: "other", ThreadID: run.ThreadID, RunID: "r"},
		{Tenant: "acme", ThreadID: "another", RunID: "r"},
		{Tenant: "acme", ThreadID: run.ThreadID, RunID: "rr"},
	} {
		if found, err := there.CancelRun(t.Context(), other, ""); found || err != nil {
			t.Errorf("%v: %v %v", other, found, err)
		}
	}
	if found, err := there.CancelRun(t.Context(), run, "enough"); !found || err != nil {
		t.Fatalf("%v %v", found, err)
	}
	if reason := <-reasons; reason != "enough" {
		t.Errorf("%q", reason)
	}
	stop()
	// The server hears of the end at the next round trip on that connection.
	stop, err = here.WatchRun(t.Context(), results.RunRef{Tenant: "acme", ThreadID: "another", RunID: "r"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if found, err := there.CancelRun(t.Context(), run, ""); found || err != nil {
		t.Errorf("%v %v", found, err)
	}
	bad := results.RunRef{Tenant: "a.b", ThreadID: "t", RunID: "r"}
	if _, err := here.WatchRun(t.Context(), bad, nil); err == nil {
		t.Error("a tenant that is none was watched")
	}
	if _, err := here.CancelRun(t.Context(), bad, ""); err == nil {
		t.Error("a tenant that is none was asked")
	}
}

func TestListOfARun(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	for _, c := range []struct{ id, thread, run string }{{"c1", "t1", "r1"}, {"c2", "t1", "r2"}, {"c3", "t2", "r1"}, {"c4", "t1", "r1"}} {
		j := job(c.id)
		j.Call.ThreadID, j.Call.RunID = c.thread, c.run
		if _, err := l.Admit(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	tenant := job("c").Call.Tenant
	for o, want := range map[results.ListOptions]string{
		{ThreadID: "t1", RunID: "r1"}: "c4 c1 ",
		{ThreadID: "t1"}:              "c4 c2 c1 ",
		{RunID: "r2"}:                 "c2 ",
		{ThreadID: "t3", RunID: "r1"}: "",
	} {
		if got := ids(t, l, tenant, o); got != want {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
}
