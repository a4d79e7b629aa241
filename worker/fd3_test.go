package worker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// Whatever a tool makes of fd 3 and of its output, its call has one result that
// says what was wrong.
func TestBadMessagesAreOneClearResult(t *testing.T) {
	h := newHouse(t)
	for _, tt := range []struct {
		name, script string
		kind         call.Kind
		says         string // all of it, or its beginning when it ends with …
	}{
		{"half a result", `echo out; printf '{"type":"result","content":"par' >&3`, call.KindCrashed, "out\n\nThe tool broke the protocol: it wrote a line to fd 3 that is not JSON."},
		{"half a result and an exit code", `printf '{"type":"result","content":"par' >&3; exit 1`, call.KindToolError, "The tool exited with code 1."},
		{"half an update", `echo out; printf '{"type":"update","content":"par' >&3`, "", "out\n"},
		{"a whole result without its newline", `printf '{"type":"result","content":"all"}' >&3`, "", "all"},
		{"two results", `echo '{"type":"result","content":"one"}' >&3; echo '{"type":"result","content":"two"}' >&3`, "", "one"},
		{"updates after the result", `echo '{"type":"result","content":"one"}' >&3; echo '{"type":"update","content":"two"}' >&3`, "", "one"},
		{"junk after the result", `echo '{"type":"result","content":"one"}' >&3; echo two >&3; sleep 20`, call.KindCrashed, "The tool broke the protocol: it wrote a line to fd 3 that is not JSON."},
		{"junk", `echo junk >&3; sleep 20`, call.KindCrashed, "The tool broke the protocol: it wrote a line to fd 3 that is not JSON."},
		{"another type", `echo '{"type":"reslut"}' >&3; sleep 20`, call.KindCrashed, "The tool broke the protocol: it wrote a message to fd 3 that is neither an update nor a result."},
		{"no object", `echo '[]' >&3; sleep 20`, call.KindCrashed, "The tool broke the protocol: …"},
		{"a member that is none", `echo '{"type":"result","contents":"x"}' >&3`, call.KindCrashed, `The tool broke the protocol: tool: the result message is malformed: json: unknown field "contents".`},
		{"a member twice", `echo '{"type":"result","content":"a","content":"b"}' >&3`, call.KindCrashed, "The tool broke the protocol: tool: the result message /content: is given twice."},
		{"no UTF-8", `printf '{"type":"result","content":"a\377b"}\n' >&3`, call.KindCrashed, "The tool broke the protocol: tool: the result message is not UTF-8."},
		{"10,000 levels", `printf '{"type":"result","content":[' >&3; printf '%010000d' 0 | tr 0 '[' >&3; printf '%010000d' 0 | tr 0 ']' >&3; echo ']}' >&3`, call.KindCrashed, "The tool broke the protocol: …"},
		{"a line of 100 MiB", `head -c 104857600 /dev/zero | tr '\0' x >&3; echo >&3`, call.KindCrashed, "The tool broke the protocol: it wrote a line to fd 3 that is too long."},
		{"parts of kinds that do not exist", `echo '{"type":"result","content":[{"type":"hologram"},{"type":"text","text":"a"},{"type":"image"}]}' >&3`, "", "a"},
		{"nothing but such parts", `echo '{"type":"result","content":[{"type":"hologram"}]}' >&3`, "", ""},
		{"parts that are none", `echo '{"type":"result","content":[7]}' >&3`, call.KindCrashed, "The tool broke the protocol: …"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkResult(t, h.run(h.admit(tt.script)), tt.kind, tt.says)
		})
	}
}

func TestEveryOutputIsReadAsItIsDeclared(t *testing.T) {
	h := newHouse(t)
	for _, tt := range []struct {
		name, output, script string
		kind                 call.Kind
		says                 string
		mimeType             string // of the only part, which is media
	}{
		{"text", "auto", `printf 'hé'`, "", "hé", ""},
		{"bytes", "auto", `printf '\211PNG\r\n\032\n'`, "", "", "image/png"},
		{"nothing", "auto", ``, "", "", ""},
		{"broken text", "text", `printf 'a\377b'`, "", "a\uFFFDb", ""},
		{"JSON", "json", `echo '{ "a": [1.0] }'`, "", `{"a":[1.0]}`, ""},
		{"junk for JSON", "json", `echo '{a'`, call.KindToolError, "{a\n\nThe tool's output is not what it declares: not JSON.", ""},
		{"two values for JSON", "json", `echo '{} {}'`, call.KindToolError, "{} {}\n\nThe tool's output is not what it declares: not JSON.", ""},
		{"nothing for JSON", "json", ``, call.KindToolError, "The tool's output is not what it declares: not JSON.", ""},
		{"JSON that is no UTF-8", "json", `printf '"a\377b"'`, call.KindToolError, "…", ""},
		{"parts", "parts", `echo '[{"type":"text","text":"a"},{"type":"hologram"},{"type":"text","text":"b"}]'`, "", "ab", ""},
		{"no list for parts", "parts", `echo '{"type":"text","text":"a"}'`, call.KindToolError, "{\"type\":\"text\",\"text\":\"a\"}\n\nThe tool's output is not what it declares: tool: not a list of content parts.", ""},
		{"binary", "binary", `printf 'GIF89a'`, "", "", "image/gif"},
		{"binary text", "binary", `printf 'hello'`, "", "", "text/plain; charset=utf-8"},
		{"nothing for binary", "binary", ``, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := h.run(h.admit(tt.script, func(j *catalog.Job) { j.Spec.Output = tt.output }))
			checkResult(t, r, tt.kind, tt.says)
			got := ""
			if len(r.Content) == 1 && r.Content[0].Source != nil {
				got = r.Content[0].Source.MimeType
			}
			if got != tt.mimeType {
				t.Errorf("the media type is %q, want %q", got, tt.mimeType)
			}
			for _, p := range r.Contents() {
				if err := p.Validate(); err != nil {
					t.Errorf("part %+v: %v", p, err)
				}
			}
		})
	}
}

// A declared answer that does not fit is one clear result, wherever it came from.
func TestOutputSchemaIsHeld(t *testing.T) {
	h := newHouse(t)
	declared := func(j *catalog.Job) {
		j.Spec.Output, j.Spec.OutputSchema = "json", json.RawMessage(`{"type":"object","required":["n"]}`)
	}
	for script, kind := range map[string]call.Kind{
		`echo '{"n":1}'`: "",
		`echo '{"m":1}'`: call.KindToolError,
		`echo '{"type":"result","content":"{\"n\":1}"}' >&3`: "",
		`echo '{"type":"result","content":"n is 1"}' >&3`:    call.KindToolError,
	} {
		wantKind(t, h.run(h.admit(script, declared)), kind)
	}
}

func checkResult(t *testing.T, r call.Result, kind call.Kind, says string) {
	t.Helper()
	wantKind(t, r, kind)
	beginning, more := strings.CutSuffix(says, "…")
	if got := words(t, r); got != says && !(more && strings.HasPrefix(got, beginning)) {
		t.Errorf("it says %.300q, want %q", got, says)
	}
}
