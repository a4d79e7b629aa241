// Command simulate shows what calls would wait, and what idle slots would cost,
// under the settings by which the chart scales workers. `make simulate` runs it.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/toolfleet/toolfleet/cmd/internal/simulate"
)

func main() {
	seed := flag.Uint64("seed", 1, "makes the calls and the starts of workers")
	flag.Parse()
	var outcomes []simulate.Outcome
	for _, l := range simulate.Loads() {
		for _, s := range simulate.Settings() {
			outcomes = append(outcomes, simulate.Run(l, s, *seed))
		}
	}
	if err := simulate.Print(os.Stdout, outcomes); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}
