// Command echo stands in for the agent in tests of the runtime alone: it
// copies its input to its output, and obeys a few lines.
package main

import (
	"io"
	"os"
)

func main() { _, _ = io.Copy(os.Stdout, os.Stdin) }
