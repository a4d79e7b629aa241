// Command word-count is the smallest useful tool: a Go function that becomes a
// tool. What it returns is told to the model as JSON.
package main

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/toolfleet/toolfleet/tool"
)

type input struct {
	Text string `json:"text" jsonschema:"the text to count in"`
}

type count struct {
	Words      int `json:"words"`
	Lines      int `json:"lines"`
	Characters int `json:"characters"`
}

func main() {
	tool.Main(tool.DefineParallel("word-count", "Counts the words, lines and characters of a text.", countWords,
		tool.Annotate(tool.Annotations{ReadOnly: true})))
}

func countWords(_ context.Context, _ *tool.Call, in input) (count, error) {
	lines := strings.Count(in.Text, "\n")
	if in.Text != "" && !strings.HasSuffix(in.Text, "\n") {
		lines++
	}
	return count{Words: len(strings.Fields(in.Text)), Lines: lines, Characters: utf8.RuneCountInString(in.Text)}, nil
}
