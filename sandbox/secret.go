package sandbox

import (
	"encoding/json"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// SecretFile is a secret that a tool finds in a file.
type SecretFile struct {
	// Name is the file's in /run/secrets, without a slash.
	Name string
	Data []byte
}

// opening are the frames that begin r: its secret files, then the start.
func (r *run) opening(files []SecretFile, start []byte) []wire.Frame {
	frames := make([]wire.Frame, 0, len(files)+4) // with room for those that mostly follow
	for _, f := range files {
		payload, _ := json.Marshal(wire.Secret{Name: f.Name, Data: f.Data}) // which any bytes are
		frames = append(frames, wire.Frame{Kind: wire.KindSecret, Stream: r.stream, Payload: payload})
	}
	return append(frames, wire.Frame{Kind: wire.KindStart, Stream: r.stream, Payload: start})
}
