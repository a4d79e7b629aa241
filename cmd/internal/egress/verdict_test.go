package egress

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// said is what the hostile tool prints: so many attempts, the last of which ends
// as the word says.
func said(attempts int, word string) []byte {
	text := fmt.Sprintf("plan %d\n", attempts)
	for n := range attempts - 1 {
		text += fmt.Sprintf("attempt-%d\tdenied\tit was reset\n", n)
	}
	return []byte(text + "the-last\t" + word + "\tthe witness answered\n")
}

// One attempt that is open, or was not made, is never a success.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name     string
		attempts int
		word     string
		isOpen   bool
		fails    bool
		says     []string
	}{
		{"all denied", MinTried, "denied", false, false, []string{"egress runc cell the-last denied\n", "egress: 40 tried, 0 open\n"}},
		{"one open", MinTried, "open", true, true, []string{"egress runc cell the-last OPEN the witness answered\n", "egress: 40 tried, 1 open\n"}},
		{"a word that nobody knows", MinTried, "maybe", true, true, []string{"the-last OPEN", "1 open\n"}},
		{"too few", MinTried - 1, "denied", false, true, []string{"egress: 39 tried, 0 open\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers, err := parse(said(c.attempts, c.word))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			v := verdict{out: &out}
			v.add("runc", "cell", answers)
			err = v.end()
			if errors.Is(err, ErrOpen) != c.isOpen || (err != nil) != c.fails {
				t.Errorf("it ends with %v", err)
			}
			for _, line := range c.says {
				if !strings.Contains(out.String(), line) {
					t.Errorf("%q is not in %q", line, out.String())
				}
			}
		})
	}
}

// A tool that ends before it has made all its attempts proves nothing.
func TestParseNeedsAllThatWasPlanned(t *testing.T) {
	whole := string(said(3, "denied"))
	for _, text := range []string{
		"", "plan 0\n", "plan 4\n" + strings.SplitAfterN(whole, "\n", 2)[1],
		whole[:strings.LastIndex(whole, "the-last")], "plan 1\nno tabs\n", "plan x\n",
	} {
		if answers, err := parse([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, answers)
		}
	}
}

// What the witness saw is open, whatever the tool says.
func TestWitnessHasTheLastWord(t *testing.T) {
	w := &witness{asked: map[string]int{"allowed.test": 1}}
	s := &scene{witness: w}
	w.hit(permitted[0])
	for _, a := range s.seen() {
		if a.open {
			t.Errorf("%+v, though nothing happened", a)
		}
	}
	w.hit("169.254.169.254:80")
	w.asked = map[string]int{"c2VjcmV0.leak.test": 1}
	for _, a := range s.seen() {
		if !a.open || !strings.Contains(a.why, "169.254.169.254:80") && !strings.Contains(a.why, "leak.test") {
			t.Errorf("%+v, though it was seen", a)
		}
	}
}
