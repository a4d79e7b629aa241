package tool

import (
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
)

// guarded runs what an author wrote, and has told make a result of a panic: that
// is the tool's failure, not the fleet's. The values and errors that an author
// returns have methods of his as well, so they are read inside. A panic in a
// goroutine that the tool started cannot be caught, and ends the program.
func guarded(onPanic func(value any, stack []byte), run func() (Result, error), told func(panicked error) Result) (r Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			if onPanic != nil {
				onPanic(v, debug.Stack())
			}
			r, err = told(panicError(v)), nil
		}
	}()
	return run()
}

// panicError is what a model is told of a panic. Addresses would make the same
// panic read differently every time, and tell it nothing.
func panicError(v any) error {
	addresses := regexp.MustCompile(`0x[0-9a-fA-F]+`)
	return errors.New("panic: " + addresses.ReplaceAllString(fmt.Sprint(v), "0x…"))
}
