package egress

import (
	"errors"
	"fmt"
	"io"
)

// verdict prints what came of the attempts, and knows at the end whether all is well.
type verdict struct {
	out io.Writer
	why bool // print the reason of every outcome

	tried, open int
	short       []error // sandboxes that were put to too few attempts
}

// add prints a line for each attempt in one sandbox.
func (v *verdict) add(runtime, isolation string, answers []answer) {
	for _, a := range answers {
		word, reason := "denied", ""
		if a.open {
			v.open++
			word = "OPEN"
		}
		if v.why || a.open {
			reason = " " + a.why
		}
		fmt.Fprintf(v.out, "egress %s %s %s %s%s\n", runtime, isolation, a.name, word, reason)
	}
	v.tried += len(answers)
	if len(answers) < MinTried {
		v.short = append(v.short, fmt.Errorf("egress: %s %s: only %d attempts were tried, fewer than %d", runtime, isolation, len(answers), MinTried))
	}
}

// end prints the sums. The error wraps [ErrOpen] when an attempt was open.
func (v *verdict) end() error {
	fmt.Fprintf(v.out, "egress: %d tried, %d open\n", v.tried, v.open)
	err := errors.Join(v.short...)
	if v.open > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d are open; the lines say which", ErrOpen, v.open))
	}
	return err
}
