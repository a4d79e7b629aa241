package main

import (
	"encoding/json"
	"io"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
	"github.com/toolfleet/toolfleet/dispatch"
)

// nativeTo writes the native view of a run to w, an event a line.
func nativeTo(w io.Writer) func(client.Event) error {
	var native dispatch.Native
	return func(ev client.Event) error {
		out, ok, err := native.Convert(ev.Event)
		if err != nil || !ok {
			return err
		}
		line, err := json.Marshal(out)
		if err != nil {
			return err
		}
		return agui.WriteLine(w, line)
	}
}
