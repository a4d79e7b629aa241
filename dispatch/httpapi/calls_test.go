package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
)

func TestSubmitWaitsForTheResult(t *testing.T) {
	d := open(t, fleet(t))
	for name, body := range map[string]string{
		"object": `{"tool":"echo","arguments":{"text": "hi"}}`,
		"text":   `{"tool":"echo","arguments":"{\"text\":\"hi\"}"}`,
	} {
		a := d.do("POST", "/v1/calls", body)
		got := decode[callBody](t, a.Body)
		if a.Status != 200 || got.Status != "succeeded" || got.text() != `{"text":"hi"}` || got.Result.IsError {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
		if _, err := call.ParseKey(got.ID); err != nil || got.ToolCallID == "" || got.ThreadID == "" || got.RunID == "" || got.Tool != "echo" {
			t.Errorf("%s: ids are missing: %s", name, a.Body)
		}
		if want := "/v1/calls/" + got.ID; a.Header.Get("Location") != want {
			t.Errorf("%s: location %q", name, a.Header.Get("Location"))
		}
		if got.Ended.Before(got.Admitted) || got.Ended.IsZero() {
			t.Errorf("%s: ended %v, admitted %v", name, got.Ended, got.Admitted)
		}
		if strings.Contains(a.Body, "is_error") || strings.Contains(a.Body, "nonce") {
			t.Errorf("%s: not this door's spelling: %s", name, a.Body)
		}
	}
}

func TestAFailingToolIsA200(t *testing.T) {
	d := open(t, fleet(t))
	for name, test := range map[string]struct {
		body string
		kind call.Kind
		says []string
	}{
		"unknown tool":    {`{"tool":"nope","arguments":{}}`, call.KindUnknownTool, []string{"nope"}},
		"not JSON":        {`{"tool":"echo","arguments":"{oops"}`, call.KindInvalidArguments, []string{"JSON"}},
		"every problem":   {`{"tool":"echo","arguments":{"times":0,"color":1}}`, call.KindInvalidArguments, []string{"text", "times", "color"}},
		"given twice":     {`{"tool":"echo","arguments":{"text":"a","text":"b"}}`, call.KindInvalidArguments, []string{"twice"}},
		"over 1 MiB":      {`{"tool":"echo","arguments":{"text":"` + strings.Repeat("x", 1<<20) + `"}}`, call.KindInvalidArguments, []string{"bytes"}},
		"no object":       {`{"tool":"echo","arguments":"[1]"}`, call.KindInvalidArguments, []string{"object"}},
		"hostile name":    {`{"tool":"../../etc","arguments":{}}`, call.KindUnknownTool, []string{"etc"}},
		"empty arguments": {`{"tool":"echo","arguments":""}`, call.KindInvalidArguments, []string{"empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := d.call(200, "/v1/calls", test.body)
			if got.Status != "refused" || !got.Result.IsError || got.Result.Error.Kind != test.kind {
				t.Errorf("%+v", got)
			}
			for _, want := range test.says {
				if !strings.Contains(got.text(), want) {
					t.Errorf("%q says nothing of %q", got.text(), want)
				}
			}
		})
	}
}

func TestWaitZeroAnswersAtOnce(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil)) // nobody works
	d := open(t, f)
	for _, wait := range []string{"0", "1ms"} {
		a := d.do("POST", "/v1/calls?wait="+wait, `{"tool":"echo","arguments":{"text":"x"}}`)
		got := decode[callBody](t, a.Body)
		if a.Status != http.StatusAccepted || got.Status != "queued" || got.Result != nil {
			t.Errorf("wait %s: %d %s", wait, a.Status, a.Body)
		}
		if b := d.do("GET", a.Header.Get("Location"), ""); b.Status != 200 || decode[callBody](t, b.Body).ID != got.ID {
			t.Errorf("wait %s: %d %s", wait, b.Status, b.Body)
		}
	}
}

func TestTheSameCallIsOneCall(t *testing.T) {
	d := open(t, fleet(t))
	const body = `{"tool":"echo","arguments":{"text":"hi"}}`
	t.Run("idempotency key", func(t *testing.T) {
		first := d.call(200, "/v1/calls", body, "Idempotency-Key: k1")
		again := d.call(200, "/v1/calls", `{"tool":"echo", "arguments": {"text" : "hi"}}`, "Idempotency-Key: k1")
		if first.ID != again.ID || first.ToolCallID != again.ToolCallID {
			t.Errorf("%+v and %+v", first, again)
		}
		if other := d.call(200, "/v1/calls", body, "Idempotency-Key: k2"); other.ID == first.ID {
			t.Error("another key is the same call")
		}
		d.wantProblem(d.do("POST", "/v1/calls", `{"tool":"echo","arguments":{"text":"ho"}}`, "Idempotency-Key: k1"), http.StatusConflict)
	})
	t.Run("ids", func(t *testing.T) {
		const ids = `"toolCallId":"c","threadId":"t","runId":"r"`
		first := d.call(200, "/v1/calls", `{"tool":"echo","arguments":{"text":"hi"},`+ids+`}`)
		again := d.call(200, "/v1/calls", `{`+ids+`,"tool":"echo","arguments":{"text":"hi"}}`)
		if first.ID != again.ID || first.ToolCallID != "c" || first.ThreadID != "t" || first.RunID != "r" {
			t.Errorf("%+v and %+v", first, again)
		}
		d.wantProblem(d.do("POST", "/v1/calls", `{"tool":"hang","arguments":{"text":"hi"},`+ids+`}`), http.StatusConflict)
	})
	t.Run("no ids", func(t *testing.T) {
		first, second := d.call(200, "/v1/calls", body), d.call(200, "/v1/calls", body)
		if first.ID == second.ID {
			t.Error("two calls without ids are one")
		}
	})
}

func TestMalformedRequestsAreProblems(t *testing.T) {
	d := open(t, fleet(t))
	const ok = `"tool":"echo","arguments":{"text":"x"}`
	for name, test := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"empty":              {"/v1/calls", ``, 400, "required"},
		"not JSON":           {"/v1/calls", `{`, 400, "JSON"},
		"a list":             {"/v1/calls", `[]`, 400, "object"},
		"two values":         {"/v1/calls", `{` + ok + `} {}`, 400, "one JSON object"},
		"not UTF-8":          {"/v1/calls", "{\"tool\":\"\xff\"}", 400, "UTF-8"},
		"unknown member":     {"/v1/calls", `{` + ok + `,"tol":1}`, 400, "tol"},
		"wrong case":         {"/v1/calls", `{` + ok + `,"Timeout":"1s"}`, 400, "Timeout"},
		"given twice":        {"/v1/calls", `{` + ok + `,"tool":"hang"}`, 400, "twice"},
		"no tool":            {"/v1/calls", `{"arguments":{}}`, 400, "tool"},
		"no arguments":       {"/v1/calls", `{"tool":"echo"}`, 400, "arguments"},
		"arguments a number": {"/v1/calls", `{"tool":"echo","arguments":1}`, 400, "arguments"},
		"arguments null":     {"/v1/calls", `{"tool":"echo","arguments":null}`, 400, "arguments"},
		"tool a number":      {"/v1/calls", `{"tool":1,"arguments":{}}`, 400, "tool"},
		"id null":            {"/v1/calls", `{` + ok + `,"runId":null}`, 400, "runId"},
		"long id":            {"/v1/calls", `{` + ok + `,"runId":"` + strings.Repeat("x", 257) + `"}`, 400, "runId"},
		"timeout no text":    {"/v1/calls", `{` + ok + `,"timeout":5}`, 400, "timeout"},
		"timeout no unit":    {"/v1/calls", `{` + ok + `,"timeout":"5"}`, 400, "timeout"},
		"timeout zero":       {"/v1/calls", `{` + ok + `,"timeout":"0s"}`, 400, "timeout"},
		"timeout negative":   {"/v1/calls", `{` + ok + `,"timeout":"-1s"}`, 400, "timeout"},
		"timeout NaN":        {"/v1/calls", `{` + ok + `,"timeout":"NaN"}`, 400, "timeout"},
		"timeout huge":       {"/v1/calls", `{` + ok + `,"timeout":"1000000h"}`, 400, "timeout"},
		"timeout over spec":  {"/v1/calls", `{` + ok + `,"timeout":"31s"}`, 400, "30s"},
		"priority":           {"/v1/calls", `{` + ok + `,"priority":"high"}`, 400, "priority"},
		"wait":               {"/v1/calls?wait=soon", `{` + ok + `}`, 400, "wait"},
		"unknown parameter":  {"/v1/calls?waits=0", `{` + ok + `}`, 400, ""},
		"too large":          {"/v1/calls", `{"tool":"` + strings.Repeat("x", 16<<20) + `"}`, 413, "16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			p := d.wantProblem(d.do("POST", test.path, test.body), test.status)
			if !strings.Contains(p.Detail, test.says) {
				t.Errorf("%q says nothing of %q", p.Detail, test.says)
			}
			if len(p.Detail) > 1000 {
				t.Errorf("a detail of %d bytes", len(p.Detail))
			}
		})
	}
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		d.wantProblem(d.do("POST", "/v1/calls", `{`+ok+`}`, "Content-Type: "+contentType), http.StatusUnsupportedMediaType)
	}
	if got := d.call(200, "/v1/calls", `{`+ok+`}`, "Content-Type: application/json; charset=utf-8"); got.Status != "succeeded" {
		t.Errorf("%+v", got)
	}
}

func TestNoSuchCall(t *testing.T) {
	d := open(t, fleet(t))
	for _, id := range []string{"nope", string(call.MakeKey("default", "a", "b", "c")), "..%2f..", "*", ">"} {
		for _, what := range []string{"GET /v1/calls/" + id, "DELETE /v1/calls/" + id, "GET /v1/calls/" + id + "/events", "GET /v1/calls/" + id + "/blobs/1"} {
			method, path, _ := strings.Cut(what, " ")
			d.wantProblem(d.do(method, path, ""), http.StatusNotFound)
		}
	}
}

func TestCancel(t *testing.T) {
	d := open(t, fleet(t))
	running := d.call(202, "/v1/calls?wait=0", `{"tool":"hang","arguments":{"text":"x"}}`)
	s := d.stream("GET", "/v1/calls/"+running.ID+"/events", "")
	s.until("ACTIVITY_DELTA")
	a := d.do("DELETE", "/v1/calls/"+running.ID+"?reason=enough", "")
	if got := decode[callBody](t, a.Body); a.Status != 202 && a.Status != 200 || !got.Cancelling && got.Result == nil {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	s.until("RUN_FINISHED")
	a = d.do("DELETE", "/v1/calls/"+running.ID, "")
	got := decode[callBody](t, a.Body)
	if a.Status != 200 || got.Status != "cancelled" || !strings.HasPrefix(got.text(), "so far") {
		t.Errorf("of an ended call: %d %s", a.Status, a.Body)
	}
}

func TestCancelOfAQueuedCall(t *testing.T) {
	d := open(t, dispatchtest.New(t, dispatchtest.Spec("echo", nil)))
	queued := d.call(202, "/v1/calls?wait=0", `{"tool":"echo","arguments":{"text":"x"}}`)
	a := d.do("DELETE", "/v1/calls/"+queued.ID+"?reason=enough", "")
	got := decode[callBody](t, a.Body)
	if a.Status != 200 || got.Status != "cancelled" || !strings.Contains(got.text(), "enough") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestListPagesAndFilters(t *testing.T) {
	d := open(t, fleet(t))
	var ids []string
	for range 5 {
		ids = append([]string{d.call(200, "/v1/calls", `{"tool":"echo","arguments":{"text":"x"}}`).ID}, ids...)
	}
	d.call(200, "/v1/calls", `{"tool":"echo","arguments":{}}`)
	type page struct {
		Calls []callBody `json:"calls"`
		Next  string     `json:"next"`
	}
	var got []string
	for path := "/v1/calls?status=succeeded&tool=echo&limit=2"; path != ""; {
		a := d.do("GET", path, "")
		p := decode[page](t, a.Body)
		if a.Status != 200 || len(p.Calls) > 2 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		for _, c := range p.Calls {
			got = append(got, c.ID)
		}
		path = ""
		if p.Next != "" {
			path = "/v1/calls?status=succeeded&tool=echo&limit=2&cursor=" + p.Next
		}
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		t.Errorf("got  %v\nwant %v", got, ids)
	}
	if p := decode[page](t, d.do("GET", "/v1/calls?status=refused", "").Body); len(p.Calls) != 1 {
		t.Errorf("%+v", p)
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "status=odd", "cursor=%21", "cursor=0", "stauts=failed"} {
		d.wantProblem(d.do("GET", "/v1/calls?"+query, ""), http.StatusBadRequest)
	}
}

func TestTools(t *testing.T) {
	d := open(t, fleet(t))
	list := decode[struct {
		Tools []struct {
			Name       string         `json:"name"`
			Parameters map[string]any `json:"parameters"`
			SpecDigest string         `json:"specDigest"`
			Limits     struct{ Timeout string }
		} `json:"tools"`
	}](t, d.do("GET", "/v1/tools", "").Body)
	if len(list.Tools) != 2 || list.Tools[0].Name != "echo" || list.Tools[0].Parameters["type"] != "object" ||
		!strings.HasPrefix(list.Tools[0].SpecDigest, "sha256:") || list.Tools[0].Limits.Timeout != "30s" {
		t.Errorf("%+v", list)
	}
	if a := d.do("GET", "/v1/tools/hang", ""); a.Status != 200 || !strings.Contains(a.Body, `"name":"hang"`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	d.wantProblem(d.do("GET", "/v1/tools/nope", ""), http.StatusNotFound)
}
