// Command shell stands in for the agent in tests of the runtime alone: it runs
// the commands on its input, as the first process of a sandbox and with the
// agent's privileges.
package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	fmt.Fprintln(os.Stderr, syscall.Exec("/bin/busybox", []string{"sh"}, os.Environ()))
	os.Exit(1)
}
