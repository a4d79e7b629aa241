package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// TestAFleetThatGoesAwayHidesNoRefusal has a letter that is refused, one at which
// the fleet is gone, and one that is not tried any more.
func TestAFleetThatGoesAwayHidesNoRefusal(t *testing.T) {
	var ids, tried []string
	for i := range 3 {
		ids = append(ids, string(call.MakeKey("default", "t", "s", fmt.Sprint(i))))
	}
	answers := map[string]error{ids[0]: errors.New("it may have done its work"), ids[1]: client.ErrUnreachable}
	err := eachLetter(slices.Clone(ids), func(id string) error {
		tried = append(tried, id)
		return answers[id]
	})
	if !slices.Equal(tried, ids[:2]) || codeOf(err) != exitNoFleet || !strings.Contains(fmt.Sprint(err), ids[0]+": it may have done its work") {
		t.Errorf("tried %v: %v", tried, err)
	}
}
