// Command egress is a hostile tool that tries to reach what its network.allow
// does not name. `toolfleet egress` runs it in real sandboxes, in a network
// namespace where a witness answers on every address and port, and says which.
//
// It prints "plan N" and then a line for each attempt: its name, "denied" or
// "open", and why, with tabs between.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

// attempt is one way to somewhere.
type attempt struct {
	name  string
	opens string // what it would mean
	try   func(b bait) (open bool, why string)
}

// bait is what the host has put out.
type bait struct {
	abstract string // an abstract socket of the host
	peer     string // one of another sandbox
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		hold(os.Args[2])
		return
	}
	var b bait
	flag.StringVar(&b.abstract, "abstract", "", "`name` of an abstract socket of the host")
	flag.StringVar(&b.peer, "peer", "", "`name` of an abstract socket of another sandbox")
	flag.Parse()
	if why := allowed(); why != "" {
		fmt.Println("plan 0")
		fmt.Fprintln(os.Stderr, why)
		os.Exit(1)
	}
	var all []attempt
	for _, group := range [][]attempt{direct, names, proxied, socks, kernel} {
		all = append(all, group...)
	}
	fmt.Println("plan", len(all))
	for _, a := range all {
		open, why := a.try(b)
		word := "denied"
		if open {
			word = "open"
			why = a.opens + ": " + why
		}
		fmt.Printf("%s\t%s\t%s\n", a.name, word, strings.Join(strings.Fields(why), " "))
	}
}
