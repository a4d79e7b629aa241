package worker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// says makes a script that sends a result with this content on fd 3.
func says(content string) string {
	return `printf '%s\n' '{"type":"result","content":` + content + `}' >&3`
}

func TestTC10UnusablePartCostsOnlyItself(t *testing.T) {
	h := newHouse(t)
	r := h.run(h.admit(says(`[{"type":"hologram","text":"x"},{"type":"text","text":"kept"},{"type":"image","source":{"type":"cloud","value":"h"}},{"type":"image"}]`)))
	wantKind(t, r, "")
	if diff := cmp.Diff([]agui.Part{agui.Text("kept")}, r.Content); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTC11UnusablePartsAreStillAnAnswer(t *testing.T) {
	h := newHouse(t)
	job := h.admit(says(`[{"type":"hologram"},{"type":"reasoning","text":"x"}]`))
	r := h.run(job)
	wantKind(t, r, "")
	raw, err := agui.Encode(r.Event(job.Call.Key(), job.Call.ToolCallID))
	if err != nil || !strings.Contains(string(raw), `"content":""`) {
		t.Errorf("the answer is %s, %v", raw, err)
	}
}

// Whatever a model wrote reaches the tool's standard input byte for byte, and
// no shell, argument or variable on the way.
func TestTC27ArgumentsReachTheToolByteForByte(t *testing.T) {
	h := newHouse(t)
	for _, args := range []string{
		`{"a":"; rm -rf / #","b":"$(id)` + "`id`" + `","c":"'\"'\"' && true | x > /etc/y"}`,
		"{\"a\":\"line\\nbreak \\u0000 \\\\ %s %n ${IFS} ~ * ? [x] é 😀\"}",
		"{\n\t\"spaces\" :  [ 1 , 2 ]\n}\n",
		`{"__proto__":1,"--flag":"-rf","../..":"\u2028"}`,
	} {
		const cut = "\n-- what else it got\n"
		r := h.run(h.admit("cat; printf '"+strings.ReplaceAll(cut, "\n", "\\n")+"'; env; tr '\\0' '\\n' < /proc/$$/cmdline | tail -n +4", func(j *catalog.Job) {
			j.Call.Arguments, j.Call.ArgumentsDigest = args, call.Digest(args)
		}))
		wantKind(t, r, "")
		read, rest, ok := strings.Cut(words(t, r), cut)
		if read != args || !ok {
			t.Errorf("the tool read %q, want %q", read, args)
		}
		if !strings.Contains(rest, "PATH=") || strings.Contains(rest, "rm -rf") || strings.Contains(rest, "__proto__") || strings.Contains(rest, "{") {
			t.Errorf("its environment and command line are %q", rest)
		}
	}
}

func TestTC26ToolCannotAddPartTypes(t *testing.T) {
	h := newHouse(t)
	for _, typ := range []string{"reasoning", "tool_call", "toolCall", "assistant"} {
		job := h.admit(says(fmt.Sprintf(`[{"type":%q,"text":"x","source":{"type":"url","value":"u"}},{"type":"text","text":"a"}]`, typ)))
		r := h.run(job)
		raw, err := agui.Encode(r.Event(job.Call.Key(), job.Call.ToolCallID))
		if err != nil || strings.Contains(string(raw), typ+`"`) || words(t, r) != "a" {
			t.Errorf("%s: %s, %v", typ, raw, err)
		}
	}
}

func TestTC41StructuredDataIsCompactText(t *testing.T) {
	h := newHouse(t)
	for stdout, want := range map[string]string{
		`{ "a" : [ 1 , null ] }`: `{"a":[1,null]}`,
		`[[1],\n[2]]`:            `[[1],[2]]`,
		` null `:                 `null`,
		`7`:                      `7`,
	} {
		r := h.run(h.admit(`printf '`+stdout+`'`, func(j *catalog.Job) { j.Spec.Output = "json" }))
		if diff := cmp.Diff([]agui.Part{agui.Text(want)}, r.Content); diff != "" {
			t.Errorf("%s (-want +got):\n%s", stdout, diff)
		}
	}
}

// A sandbox has no account with a provider: a handle that comes out of one is
// nobody's, and is dropped unread.
func TestTC43ToolHasNoFileHandles(t *testing.T) {
	h := newHouse(t)
	for _, handle := range []string{"file-abc123", "http://169.254.169.254/latest", "../../etc/passwd"} {
		r := h.run(h.admit(says(`[{"type":"text","text":"a"},{"type":"document","source":{"type":"file","value":"` + handle + `","provider":"openai"}}]`)))
		if diff := cmp.Diff([]agui.Part{agui.Text("a")}, r.Content); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
