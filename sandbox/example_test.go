package sandbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// One call of a tool, start to end. Any runtime will do, such as one of package
// sandbox/containerd or, for trying things out, sandbox/local.
func ExampleOpen() {
	call := func(ctx context.Context, rt sandbox.Runtime) error {
		sb, err := sandbox.Open(ctx, rt, "example-1", sandbox.Spec{Image: "local/word-count:1"})
		if err != nil {
			return err // our failure; no tool has run
		}
		defer func() {
			// The removal outlives the call.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			_ = sb.Close(ctx)
		}()
		exit, err := sb.Run(ctx, sandbox.Process{
			Argv:  []string{"/tool"},
			Stdin: []byte(`{"text": "three words here"}`),
		}, sandbox.Sink{
			Stderr: func(piece []byte) { fmt.Printf("progress: %s", piece) },
		})
		if err != nil {
			return err
		}
		fmt.Printf("%s with code %d: %s", exit.Cause, exit.Code, exit.Stdout)
		return nil
	}
	_ = call
}
