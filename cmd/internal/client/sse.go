package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/toolfleet/toolfleet/agui"
)

// maxLine bounds one line of a stream.
const maxLine = 16 << 20

type frame struct {
	id   string
	data []byte
}

type frames struct{ lines *bufio.Scanner }

func newFrames(r io.Reader) *frames {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	return &frames{s}
}

// next returns the next frame with data.
func (f *frames) next() (frame, error) {
	var fr frame
	for f.lines.Scan() {
		line := f.lines.Bytes()
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && fr.data != nil:
			return fr, nil
		case string(name) == "id":
			fr.id = string(value)
		case string(name) == "data":
			if fr.data != nil {
				fr.data = append(fr.data, '\n')
			}
			fr.data = append(fr.data, value...)
		}
	}
	if err := f.lines.Err(); err != nil {
		return frame{}, err
	}
	return frame{}, io.EOF
}

func decode(data []byte) (agui.Event, error) {
	var head struct {
		Type agui.EventType `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil || head.Type == "" {
		return nil, fmt.Errorf("the fleet sent what is no event")
	}
	read := func(v any) error { return json.Unmarshal(data, v) }
	switch head.Type {
	case agui.TypeRunStarted:
		var e agui.RunStarted
		err := read(&e)
		return e, err
	case agui.TypeRunFinished:
		var e agui.RunFinished
		err := read(&e)
		return e, err
	case agui.TypeRunError:
		var e agui.RunError
		err := read(&e)
		return e, err
	case agui.TypeToolCallStart:
		var e agui.ToolCallStart
		err := read(&e)
		return e, err
	case agui.TypeToolCallArgs:
		var e agui.ToolCallArgs
		err := read(&e)
		return e, err
	case agui.TypeToolCallEnd:
		var e agui.ToolCallEnd
		err := read(&e)
		return e, err
	case agui.TypeToolCallResult:
		var e agui.ToolCallResult
		err := read(&e)
		return e, err
	case agui.TypeActivitySnapshot:
		var e agui.ActivitySnapshot
		err := read(&e)
		return e, err
	case agui.TypeActivityDelta:
		var e agui.ActivityDelta
		err := read(&e)
		return e, err
	}
	return agui.Other{Type: head.Type, JSON: data}, nil
}
