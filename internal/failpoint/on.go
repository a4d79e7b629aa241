//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// rules are read at the first hit. A program that cannot read them must not
// run as if there were none.
var rules = sync.OnceValue(func() map[Point]*rule {
	text := os.Getenv("TOOLFLEET_FAILPOINT")
	if text == "" {
		return nil
	}
	seed, err := strconv.ParseUint(os.Getenv("TOOLFLEET_FAILPOINT_SEED"), 10, 64)
	if err != nil {
		panic("failpoint: TOOLFLEET_FAILPOINT_SEED is not a number: " + err.Error())
	}
	r, err := parse(text, seed)
	if err != nil {
		panic(err)
	}
	return r
})

// Hit dies or stalls when the environment says so.
func Hit(p Point) {
	r := rules()[p]
	if r == nil || !r.struck() {
		return
	}
	fmt.Fprintf(os.Stderr, "failpoint %s struck\n", p)
	if r.exit {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {} // the signal is on its way
	}
	<-time.After(r.sleep)
}
