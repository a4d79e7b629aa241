package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"text/tabwriter"

	"github.com/toolfleet/toolfleet/agui"
)

// maxPage is the largest page that the API gives.
const maxPage = 1000

// ListFlags say how much of a list is shown, and how.
type ListFlags struct {
	Limit  int    `help:"How many at most." default:"50"`
	Format string `help:"text: a table; json: an entry a line." enum:"text,json" default:"text"`
}

// listing is one of the fleet's lists: where a page of it comes from, and how
// an entry looks in a table.
type listing struct {
	page func(ctx context.Context, query url.Values) (entries []json.RawMessage, next string, err error)
	head string
	line func(w io.Writer, entry json.RawMessage) error
}

// show shows the list, page by page. Query says what is asked for, and empty
// values ask for nothing.
func (f *ListFlags) show(ctx context.Context, term *terminal, l listing, query map[string]string) error {
	if f.Limit < 1 {
		return usagef("--limit must be at least 1")
	}
	w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
	show := func(entry json.RawMessage) error { return agui.WriteLine(term.out, entry) }
	if f.Format == "text" {
		fmt.Fprintln(w, l.head)
		show = func(entry json.RawMessage) error { return l.line(w, entry) }
	}
	values := url.Values{}
	for name, value := range query {
		if value != "" {
			values.Set(name, value)
		}
	}
	for left := f.Limit; left > 0; {
		values.Set("limit", strconv.Itoa(min(left, maxPage)))
		entries, next, err := l.page(ctx, values)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := show(entry); err != nil {
				return err
			}
		}
		left -= len(entries)
		if next == "" || len(entries) == 0 {
			break
		}
		values.Set("cursor", next)
	}
	return w.Flush()
}

// decodeEntry reads an entry of a list for its line in a table.
func decodeEntry[T any](raw json.RawMessage) (T, error) {
	var entry T
	if err := json.Unmarshal(raw, &entry); err != nil {
		return entry, fmt.Errorf("the fleet's list cannot be read: %w", err)
	}
	return entry, nil
}

// writeFacts writes names and values below each other, a pair a line. Values
// come from the fleet and from tools, and are kept to their line.
func writeFacts(out io.Writer, facts [][2]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, fact := range facts {
		fmt.Fprintf(w, "%s\t%s\n", fact[0], oneLine(fact[1]))
	}
	return w.Flush()
}
