package wire_test

import (
	"bytes"
	"fmt"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// An agent says hello and sends what its tool wrote; a host reads it.
func Example() {
	var connection bytes.Buffer
	agent := wire.NewWriter(&connection)
	_ = agent.JSON(wire.KindHello, 0, wire.Hello{Version: wire.Version, PID: 1})
	_ = agent.Frame(wire.KindStdout, 1, []byte("3 words here\n"))
	_ = agent.JSON(wire.KindExit, 1, wire.Exit{Code: 0})

	host := wire.NewReader(&connection)
	for {
		f, err := host.Next()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v on %d: %q\n", f.Kind, f.Stream, f.Payload)
	}
	// Output:
	// hello on 0: "{\"version\":2,\"pid\":1,\"uid\":0,\"gid\":0}"
	// stdout on 1: "3 words here\n"
	// exit on 1: "{\"code\":0}"
	// EOF
}
