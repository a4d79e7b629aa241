package catalog

import (
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// A tool is looked up by the whole of its name: nothing is read out of it.
func TestTC33NameIsLookedUpAsItIs(t *testing.T) {
	c := newCatalog(t, wordCount())
	for _, name := range []string{"Word-Count", "word-count ", " word-count", "functions.word-count", "word-count:1", "word-count/x", "word_count", "word-count\x00"} {
		if _, refused := c.Check(aCall(name), `{"text":"a"}`, time.Now()); refused == nil || refused.Kind() != call.KindUnknownTool {
			t.Errorf("%q is taken for a tool: %+v", name, refused)
		}
	}
	if _, refused := c.Check(aCall("word-count"), `{"text":"a"}`, time.Now()); refused != nil {
		t.Errorf("refused: %+v", refused)
	}
}
