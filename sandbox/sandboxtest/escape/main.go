// Command escape is a hostile tool: inside a sandbox it tries every way out or
// up that its authors know, and tells of each what came of it. `toolfleet
// escape` runs it and is the judge.
//
// It prints "plan N", then N lines of a name, an outcome and a reason with tabs
// between. Each attempt runs in a process of its own, so that one that breaks
// its process breaks nothing else. An attempt looks at the effect: a mount is
// open when something is mounted, not when the call returned 0.
//
// `hold NAME` takes something that the kernel counts for a user of the host,
// as much of it as it gets, says on stderr how much that was, and keeps it: then
// the host looks whether it still has some.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// bait is what the host put out for the tool to reach.
type bait struct {
	port       int    // where the host listens, on every address it has
	addresses  string // these addresses, with commas between
	abstract   string // abstract socket on which the host listens
	peer       string // abstract socket on which another sandbox listens
	marker     string // path of a file of the host
	secret     string // what stands in it
	containerd string // path of containerd's socket on the host
}

func parse(args []string) (bait, []string) {
	var b bait
	f := flag.NewFlagSet("escape", flag.ExitOnError)
	f.IntVar(&b.port, "port", 0, "")
	f.StringVar(&b.addresses, "addresses", "", "")
	f.StringVar(&b.abstract, "abstract", "", "")
	f.StringVar(&b.peer, "peer", "", "")
	f.StringVar(&b.marker, "marker", "", "")
	f.StringVar(&b.secret, "secret", "", "")
	f.StringVar(&b.containerd, "containerd", "", "")
	_ = f.Parse(args) // exits
	return b, f.Args()
}

func main() {
	b, args := parse(os.Args[1:])
	switch {
	case len(args) == 0:
		all()
	case args[0] == "list":
		for _, a := range attempts {
			fmt.Printf("%s\t%s\n", a.name, a.opens)
		}
	case args[0] == "try":
		// Some attempts change their thread, and must be it.
		runtime.LockOSThread()
		o := find(args[1]).try(b)
		fmt.Printf("%s\t%s\n", o.word, strings.Join(strings.Fields(o.reason), " "))
	case args[0] == "hold":
		hold(args[1])
	default:
		os.Exit(inner(args))
	}
}

func find(name string) attempt {
	for _, a := range attempts {
		if a.name == name {
			return a
		}
	}
	fmt.Fprintln(os.Stderr, "no such attempt:", name)
	os.Exit(2)
	return attempt{}
}

// all tries everything, one after the other.
func all() {
	fmt.Printf("plan %d\n", len(attempts))
	for _, a := range attempts {
		word, reason := inProcess(a)
		fmt.Printf("%s\t%s\t%s\n", a.name, word, reason)
	}
}

const attemptTimeout = 30 * time.Second

// inProcess makes one attempt in a process of its own. What cannot be seen to
// be denied is open.
func inProcess(a attempt) (word, reason string) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	args := slices.Concat(os.Args[1:], []string{"try", a.name})
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	line, _ := bufio.NewReader(bytes.NewReader(out)).ReadString('\n')
	if word, reason, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
		return word, reason
	}
	if err == nil {
		err = errors.New("it said nothing")
	}
	first, _, _ := strings.Cut(stderr.String(), "\n")
	return "open", fmt.Sprintf("the attempt gave no answer: %v %s", err, first)
}
