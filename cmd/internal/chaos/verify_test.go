package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/call"
)

// judged is what one call comes to, in the words of the report.
func judged(a asked, seen answer, l logged, w witness) string {
	v := &verdict{}
	v.judge(a, seen, l, w)
	return v.String()
}

const (
	allKept   = "lost=0 duplicate_results=0 nonidempotent_restarted=0 wrong_kind=0 orphans=0"
	oneLost   = "lost=1 duplicate_results=0 nonidempotent_restarted=0 wrong_kind=0 orphans=0"
	oneTwice  = "lost=0 duplicate_results=1 nonidempotent_restarted=0 wrong_kind=0 orphans=0"
	oneAgain  = "lost=0 duplicate_results=0 nonidempotent_restarted=1 wrong_kind=0 orphans=0"
	oneWrong  = "lost=0 duplicate_results=0 nonidempotent_restarted=0 wrong_kind=1 orphans=0"
	worstCase = "lost=0 duplicate_results=0 nonidempotent_restarted=1 wrong_kind=1 orphans=0"
)

func TestVerdictOfOneCall(t *testing.T) {
	ran := logged{results: 1, started: true, attempts: 1}
	whole, half, none := witness{1, 1}, witness{1, 0}, witness{}
	once, again := asked{}, asked{idempotent: true}
	wants := func(a asked, k call.Kind) asked { a.want = k; return a }
	as := func(l logged, k call.Kind) logged { l.kind = k; return l }
	spent, unrun := ran, ran
	spent.attempts, unrun.started = call.MaxAttempts, false
	cancelled := ran
	cancelled.cancelled = true
	for name, c := range map[string]struct {
		asked asked
		log   logged
		ran   witness
		want  string
	}{
		"succeeded":                          {once, ran, whole, allKept},
		"succeeded in the second start":      {again, ran, witness{2, 1}, allKept},
		"restarted":                          {once, ran, witness{2, 1}, oneAgain},
		"succeeded without an end":           {once, ran, half, oneWrong},
		"succeeded without a start":          {again, ran, none, oneWrong},
		"no result":                          {again, logged{started: true}, whole, oneLost},
		"two results":                        {again, logged{results: 2, started: true}, whole, oneTwice},
		"another end":                        {once, as(ran, call.KindTimeout), whole, oneWrong},
		"failed as asked":                    {wants(once, call.KindToolError), as(ran, call.KindToolError), half, allKept},
		"failed without having run":          {wants(once, call.KindToolError), as(ran, call.KindToolError), none, oneWrong},
		"interrupted":                        {once, as(ran, call.KindInterrupted), half, allKept},
		"interrupted before it could begin":  {once, as(ran, call.KindInterrupted), none, allKept},
		"interrupted twice":                  {once, as(ran, call.KindInterrupted), witness{2, 0}, oneAgain},
		"interrupted, may be repeated":       {again, as(ran, call.KindInterrupted), half, oneWrong},
		"interrupted, never started":         {once, as(unrun, call.KindInterrupted), none, oneWrong},
		"given up":                           {again, as(spent, call.KindSandboxFailed), witness{3, 0}, allKept},
		"given up too early":                 {again, as(ran, call.KindSandboxFailed), half, oneWrong},
		"given up though it may have run":    {once, as(spent, call.KindSandboxFailed), half, oneWrong},
		"restarted and given up":             {once, as(spent, call.KindInternal), witness{3, 0}, worstCase},
		"cancelled":                          {wants(once, call.KindCancelled), as(cancelled, call.KindCancelled), half, allKept},
		"cancelled before its start":         {wants(once, call.KindCancelled), as(cancelled, call.KindCancelled), none, allKept},
		"cancelled by nobody":                {wants(once, call.KindCancelled), as(ran, call.KindCancelled), half, oneWrong},
		"refused":                            {wants(once, call.KindUnknownTool), as(unrun, call.KindUnknownTool), none, allKept},
		"refused and run":                    {wants(once, call.KindUnknownTool), as(unrun, call.KindUnknownTool), half, oneWrong},
		"expired":                            {wants(once, call.KindExpired), as(unrun, call.KindExpired), none, allKept},
		"expired and run":                    {wants(once, call.KindExpired), as(ran, call.KindExpired), half, oneWrong},
		"expired, though it was to succeed":  {again, as(unrun, call.KindExpired), none, oneWrong},
		"interrupted, though it was to fail": {wants(once, call.KindCrashed), as(ran, call.KindInterrupted), half, allKept},
		"killed by us, and called a crash":   {once, as(ran, call.KindCrashed), half, oneWrong},
		"an image that could not be fetched": {again, as(spent, call.KindImageUnavailable), none, oneWrong},
	} {
		t.Run(name, func(t *testing.T) {
			seen := answer{results: 1, kind: c.log.kind}
			if got := judged(c.asked, seen, c.log, c.ran); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestWhatTheClientSawCounts(t *testing.T) {
	ran, whole := logged{results: 1, started: true, attempts: 1}, witness{1, 1}
	for name, c := range map[string]struct {
		seen answer
		want string
	}{
		"the result":     {answer{results: 1}, allKept},
		"no result":      {answer{}, oneLost},
		"an error":       {answer{results: 1, err: errors.New("gone")}, oneLost},
		"two in one run": {answer{results: 2}, oneTwice},
		"two kinds":      {answer{results: 1, differs: true}, oneTwice},
		"another kind":   {answer{results: 1, kind: call.KindTimeout}, oneTwice},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judged(asked{}, c.seen, ran, whole); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestLedger(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	if err := makeLedger(dir); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "notes")
	text := "start call-1 7 1.5\nstart call-2 7 1.6\nend call-1 7 2.0\nstart call-1 9 3.0\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]witness{"call-1": {2, 1}, "call-2": {1, 0}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(witness{})); d != "" {
		t.Error(d)
	}
	if err := os.WriteFile(name, []byte(text+"sta"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readLedger(dir); err == nil {
		t.Error("a torn line was taken")
	}
}

func TestLogIsReadByItself(t *testing.T) {
	r := logReader{ids: map[string]string{}, logs: map[string]logged{}}
	for _, m := range []struct{ kind, data string }{
		{"admit", `{"type":"CUSTOM","name":"toolfleet.admit","value":{"call":{"toolCallId":"call-1"}}}`},
		{"claim", `{"type":"CUSTOM","name":"toolfleet.claim","value":{"attempt":1}}`},
		{"start", `{"type":"CUSTOM","name":"toolfleet.start","value":{"attempt":2}}`},
		{"cancel", `{"type":"CUSTOM","name":"toolfleet.cancel","value":{"reason":""}}`},
		{"progress", `{"type":"ACTIVITY_DELTA"}`},
		{"result", `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"call-1","content":"no","metadata":{"toolfleet.error":{"kind":"cancelled","message":"no"}}}`},
		{"result", `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"call-1","content":"yes"}`},
	} {
		if err := r.take("toolfleet.events.default.key."+m.kind, []byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]logged{"call-1": {results: 2, kind: call.KindCancelled, says: "no", started: true, attempts: 2, cancelled: true}}
	if d := cmp.Diff(want, r.byID(), cmp.AllowUnexported(logged{})); d != "" {
		t.Error(d)
	}
	if err := r.take("toolfleet.events.default.key.start", []byte(`{"value":{"void":true,"attempt":9}}`)); err != nil {
		t.Fatal(err)
	}
	if l := r.byID()["call-1"]; l.attempts != 2 {
		t.Error("a fence that was taken to end the call counts as an attempt")
	}
}

func TestEndsOfProcesses(t *testing.T) {
	var d deaths
	for _, said := range []string{"\nx\nfailpoint ran struck\n", "\npanic: no\ngoroutine 1", "\nfatal error: all", "\nworker: no NATS server"} {
		d.count(said)
	}
	if d != (deaths{failpoints: 1, panics: 2, exits: 1}) {
		t.Errorf("%+v", d)
	}
}
