package main

import (
	"fmt"
	"net"
	"os"
)

// hold listens on an abstract socket until its sandbox ends.
func hold(name string) {
	l, err := net.Listen("unix", "@"+name) //nolint:noctx // for as long as the process lives
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.Close()
	}
}
