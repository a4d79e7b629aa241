package failpoint

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// draws is what a rule's first hits come to.
func draws(t *testing.T, text string, seed uint64, p Point) []bool {
	t.Helper()
	rules, err := parse(text, seed)
	if err != nil {
		t.Fatal(err)
	}
	var got []bool
	for range 200 {
		got = append(got, rules[p].struck())
	}
	return got
}

func TestSameSeedSameHits(t *testing.T) {
	const text = "admitted:exit:1in5, ran:sleep=8s:1in5"
	first := draws(t, text, 7, Admitted)
	if !slices.Equal(first, draws(t, text, 7, Admitted)) {
		t.Error("the same seed strikes other hits")
	}
	if slices.Equal(first, draws(t, text, 8, Admitted)) || slices.Equal(first, draws(t, text, 7, Ran)) {
		t.Error("another seed or another point strikes the same hits")
	}
	if !slices.Contains(first, true) || !slices.Contains(first, false) {
		t.Error("1in5 strikes all or none")
	}
}

func TestRules(t *testing.T) {
	rules, err := parse("ran:sleep=8s:1in1,started:exit:1in3", 1)
	if err != nil {
		t.Fatal(err)
	}
	if r := rules[Ran]; r.exit || r.sleep != 8*time.Second || !r.struck() {
		t.Errorf("ran: %+v", r)
	}
	if r := rules[Started]; !r.exit || r.every != 3 {
		t.Errorf("started: %+v", r)
	}
}

func TestMisspeltRulesAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "ran", "runs:exit:1in3", "ran:die:1in3", "ran:exit:3", "ran:exit:1in0", "ran:sleep=x:1in2",
		"ran:exit:1in2,ran:exit:1in3", "ran:exit:1in2,",
	} {
		if _, err := parse(text, 1); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
