package agui_test

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/toolfleet/toolfleet/agui"
)

// Calls are taken from an agent's stream in four steps: decode, expand chunks,
// verify the order, assemble.
func Example() {
	stream := `data: {"type":"RUN_STARTED","threadId":"t1","runId":"r1"}

data: {"type":"TOOL_CALL_CHUNK","toolCallId":"c1","toolCallName":"word-count","delta":"{\"text\":"}

data: {"type":"TOOL_CALL_CHUNK","delta":"\"to be\"}"}

data: {"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}

`
	var (
		decoder   agui.Decoder
		expander  agui.Expander
		verifier  agui.Verifier
		assembler agui.Assembler
	)
	take := func(data []byte) error {
		event, warnings, err := decoder.Decode(data)
		if err != nil {
			return err
		}
		for _, w := range warnings {
			fmt.Println("warning:", w)
		}
		if event == nil {
			return nil // of a type that nobody knows
		}
		events, err := expander.Expand(event)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := verifier.Check(e); err != nil {
				return err
			}
			c, err := assembler.Add(e)
			if err != nil {
				return err
			}
			if c != nil {
				fmt.Println(c.ID, c.Name, c.Arguments)
			}
		}
		return nil
	}
	frames := agui.NewFrameReader(strings.NewReader(stream))
	for {
		frame, err := frames.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = take(frame.Data)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("pending:", verifier.Pending(), "sound end:", verifier.End() == nil)
	// Output:
	// c1 word-count {"text":"to be"}
	// pending: [c1] sound end: true
}
