package worker

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/worker/secret"
)

// canary is a secret that must come out nowhere.
const canary = "CANARY-7f3a_9+QpXvB2mK_8sLdWz4"

// vault gives the house's tools the canary, under the name "key".
func (h *house) vault() (log *bytes.Buffer) {
	h.Helper()
	dir := h.TempDir()
	file := "apiVersion: toolfleet/v1\nkind: Secrets\nsecrets: [{name: key, file: key, tools: [sh], tenants: [default]}]\n"
	for name, text := range map[string]string{"secrets.yaml": file, "key": canary + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			h.Fatal(err)
		}
	}
	log = new(bytes.Buffer)
	h.Logger = slog.New(slog.NewJSONHandler(log, nil))
	var err error
	if h.Secrets, err = secret.Open(filepath.Join(dir, "secrets.yaml"), nil, h.Logger); err != nil {
		h.Fatal(err)
	}
	return log
}

// wants has a job's tool find the secret name in its environment, as KEY.
func wants(name string) func(*catalog.Job) {
	return func(j *catalog.Job) { j.Spec.Secrets = []catalog.Secret{{Name: name, Env: "KEY"}} }
}

// everything is the whole log of a call as text, and its blobs.
func (h *house) everything(job catalog.Job) string {
	h.Helper()
	var all strings.Builder
	h.until(job, func(e results.Entry) bool {
		all.Write(e.Data)
		all.WriteByte('\n')
		return e.Kind == results.KindResult
	})
	for _, p := range h.result(job).Contents() {
		if p.Source != nil && !strings.HasPrefix(p.Source.Value, "https:") {
			data, _ := h.bytesOf(job, p)
			all.Write(data)
		}
	}
	return all.String()
}

// traces are what gives a canary away: pieces of it in every spelling.
func traces() []string {
	var all []string
	forms := []string{canary, hex.EncodeToString([]byte(canary))}
	for before := range 3 {
		forms = append(forms, base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + canary))[4:])
	}
	for _, f := range forms {
		for i := 0; i+12 <= len(f)-2; i++ { // the last two hold bits of what follows
			all = append(all, f[i:i+12])
		}
	}
	return all
}

// TestPain92Canary: whichever way a tool gives its secret away, neither the
// call's log nor its blobs nor the worker's log have it.
func TestPain92Canary(t *testing.T) {
	// Pieces of the secret: two halves, and three thirds.
	const cut = `A=$(printf %s "$KEY" | cut -c1-15) B=$(printf %s "$KEY" | cut -c16-)
		X=$(printf %s "$KEY" | cut -c1-10) Y=$(printf %s "$KEY" | cut -c11-20) Z=$(printf %s "$KEY" | cut -c21-); `
	for name, script := range map[string]string{
		"whole":              `echo "it is $KEY."`,
		"as an error":        `echo "no such host: https://me:$KEY@example.com/" >&2; exit 3`,
		"in pieces":          cut + `printf %s $A; sleep 0.1; printf %s $B; printf %s $A >&2; sleep 0.2; printf %s $B >&2; sleep 0.2; printf %s $X >&2; sleep 0.2; printf %s $Y$Z >&2`,
		"reversed order":     cut + `printf %s $B; printf ,; printf %s $A; printf %s $B >&2; sleep 0.2; printf ,%s $A >&2`,
		"base64":             `printf %s "$KEY" | base64; printf x%s "$KEY" | base64 >&2; printf xx%s "$KEY" | base64 -w 20`,
		"hex":                `printf %s "$KEY" | od -An -v -tx1 | tr -d ' \n'`,
		"updates":            cut + `for p in $B $A; do echo '{"type":"update","message":"'$p'","content":"'$p'"}' >&3; sleep 0.15; done`,
		"whole update":       `echo '{"type":"update","message":"'$KEY'","content":"'$KEY$KEY'"}' >&3; sleep 0.2`,
		"a result":           `echo '{"type":"result","content":[{"type":"text","text":"'$KEY'"}],"is_error":true}' >&3`,
		"a result in parts":  cut + `echo '{"type":"result","content":[{"type":"text","text":"'$X'"},{"type":"text","text":"'$Y'"},{"type":"text","text":"'$Z'"}]}' >&3`,
		"a result's data":    `echo '{"type":"result","content":[{"type":"document","source":{"type":"data","mimeType":"text/plain","value":"'$(printf %s "$KEY" | base64 -w 0)'"}}]}' >&3`,
		"a result's members": `echo '{"type":"result","content":[{"type":"text","id":"'$KEY'","text":"x","metadata":{"'$KEY'":"'$KEY'"}},{"type":"image","source":{"type":"url","value":"https://example.com/'$KEY'"}}]}' >&3`,
		"junk on fd 3":       `echo "$KEY"; sleep 0.1; echo "$KEY" >&3`,
		"a bad update":       `echo '{"type":"update","content":"'$KEY'"' >&3; sleep 0.2; echo "$KEY"`,
		"bytes":              `printf '\377\000%s\376' "$KEY"`,
		"a signal":           `echo $KEY; echo $KEY >&2; kill -9 $$`,
		"much":               `i=0; while [ $i -lt 2000 ]; do echo "$i $KEY of many"; i=$((i+1)); done`,
		"too much":           `while :; do echo "$KEY"; done`,
		"long stderr":        `i=0; while [ $i -lt 3000 ]; do echo "$i $KEY of many" >&2; i=$((i+1)); done; exit 1`,
		"files":              `cd out; echo "$KEY" > a; printf %s "$KEY" | base64 > b; : > "$KEY"; i=0; while [ $i -lt 9000 ]; do echo "$i $KEY of many"; i=$((i+1)); done > big; ln -s /x "l$KEY"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.quiet = time.Millisecond
			log := h.vault()
			job := h.admit(script, wants("key"), func(j *catalog.Job) { j.Spec.Limits.Disk = 8 << 20 })
			h.run(job)
			all := h.everything(job) + log.String()
			for _, trace := range traces() {
				if strings.Contains(all, trace) {
					t.Fatalf("%q is in\n%.4000s", trace, all)
				}
			}
			if !strings.Contains(all, "[redacted]") {
				t.Errorf("nothing was taken out: %.2000s", all)
			}
		})
	}
}

// TestSecretsReachTheTool: what the spec names, and nothing else, is where it
// says; the output around a secret is untouched.
func TestSecretsReachTheTool(t *testing.T) {
	h := newHouse(t)
	h.vault()
	job := h.admit(`[ "$KEY" = '`+canary+`' ] && echo "same, [$KEY]"`, wants("key"))
	r := h.run(job)
	wantKind(t, r, "")
	if got := words(t, r); got != "same, [[redacted]]\n" {
		t.Errorf("it said %q", got)
	}
	if got := words(t, h.run(h.admit(`echo "${KEY-none} `+canary+`"`))); got != "none "+canary+"\n" {
		t.Errorf("a tool without secrets said %q", got)
	}
}

// TestPain92NotGranted: a call that may not have its secret is declined before
// anything is started, by name.
func TestPain92NotGranted(t *testing.T) {
	for _, without := range []bool{false, true} {
		h := newHouse(t)
		if h.vault(); without {
			h.Secrets = nil
		}
		job := h.admit("echo ran", wants("other"))
		r := h.run(job)
		wantKind(t, r, call.KindDeclined)
		if text := words(t, r); !strings.Contains(text, `"other"`) || h.pool.started.Load() != 0 {
			t.Errorf("%d sandboxes, and it said %q", h.pool.started.Load(), text)
		}
		if s := h.state(job); s.Start == nil || !s.Start.Void {
			t.Errorf("started: %+v", s.Start)
		}
	}
}

// TestUnreadableSecret: a secret that was granted and is not there may be there
// at the next attempt, and the last one names it.
func TestUnreadableSecret(t *testing.T) {
	h := newHouse(t)
	log := h.vault()
	file := "apiVersion: toolfleet/v1\nkind: Secrets\nsecrets: [{name: key, file: nowhere, tools: [sh], tenants: [default]}]\n"
	path := filepath.Join(t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.Secrets, err = secret.Open(path, nil, h.Logger); err != nil {
		t.Fatal(err)
	}
	job := h.admit("echo ran", wants("key"))
	for range call.MaxAttempts - 1 {
		if err := h.deliver(t.Context(), job); err == nil {
			t.Fatal("not given back")
		}
	}
	r := h.run(job)
	wantKind(t, r, call.KindInternal)
	if text := words(t, r); !strings.Contains(text, `"key"`) || strings.Contains(text, "nowhere") || h.pool.started.Load() != 0 {
		t.Errorf("%d sandboxes, and it said %q", h.pool.started.Load(), text)
	}
	if !strings.Contains(log.String(), "nowhere") {
		t.Error("the operator is not told where it was looked for")
	}
}
