package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/toolfleet/toolfleet/cmd/internal/part"
)

// Nobody who was woken should find that the page's command is none. Every one of
// the runbooks is parsed as it stands, without being run.
func TestRunbooksNameCommandsThatExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no runbooks", err)
	}
	shown := regexp.MustCompile("(?m)^\\$ toolfleet ([^#\n|]+)|`toolfleet\\s([^`]+)`")
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range shown.FindAllStringSubmatch(string(text), -1) {
			seen++
			args := strings.Fields(match[1] + match[2])
			var out bytes.Buffer
			parser, err := kong.New(&commands{}, kong.Name("toolfleet"), kong.Configuration(part.YAML), kong.Vars{"version": "test"}, kong.Writers(&out, &out))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(args); err != nil {
				t.Errorf("%s: toolfleet %s: %v", filepath.Base(page), strings.Join(args, " "), err)
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d commands on %d pages: does the pattern still find them?", seen, len(pages))
	}
}
