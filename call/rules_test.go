package call

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/agui"
)

// What ties everything of a call together is made of its ids. Its tool, its
// arguments and the run it is asked for in are no part of it.
func TestTC32CallIsMatchedByItsID(t *testing.T) {
	c := Call{Tenant: "default", ThreadID: "t", RunID: "r", Scope: "m", ToolCallID: "c", Tool: "a", Arguments: "{}"}
	same := c
	same.RunID, same.Tool, same.Arguments = "s", "b", `{"x":1}`
	if same.Key() != c.Key() {
		t.Error("another run, name or text makes another call")
	}
	for name, change := range map[string]func(*Call){
		"toolCallId": func(c *Call) { c.ToolCallID = "d" },
		"scope":      func(c *Call) { c.Scope = "n" },
		"threadId":   func(c *Call) { c.ThreadID = "u" },
		"tenant":     func(c *Call) { c.Tenant = "other" },
	} {
		other := c
		if change(&other); other.Key() == c.Key() {
			t.Errorf("another %s makes the same call", name)
		}
	}
}

func TestTC38ResultIsAMessageOfItsOwn(t *testing.T) {
	one, two := MakeKey("default", "t", "m", "c1"), MakeKey("default", "t", "m", "c2")
	first := Result{}.Event(one, "c1")
	if again := (Result{}).Event(one, "c1"); again.MessageID != first.MessageID {
		t.Error("a redelivery makes another message")
	}
	ids := map[string]bool{"c1": true, "c2": true, "m": true}
	for _, id := range []string{first.MessageID, (Result{}).Event(two, "c2").MessageID, one.ActivityMessageID(), two.ActivityMessageID()} {
		if ids[id] {
			t.Errorf("the message id %s is used twice", id)
		}
		ids[id] = true
	}
}

// What the result's event says and what its tool message says is the same.
func TestTC40ResultEventAndMessageAgree(t *testing.T) {
	for name, r := range map[string]Result{
		"empty":  {},
		"text":   {Content: []agui.Part{agui.Text("x")}},
		"parts":  {Content: []agui.Part{agui.Text("x"), agui.MediaOf([]byte("%PDF-"))}, Extra: []agui.Part{Reminder("r")}},
		"failed": Failure(KindTimeout, "The tool did not end.", agui.Text("so far")),
	} {
		e := r.Event(MakeKey("", "", "", ""), "c")
		if diff := cmp.Diff(e.Content, e.Message().Content); diff != "" {
			t.Errorf("%s (-event +message):\n%s", name, diff)
		}
	}
}
