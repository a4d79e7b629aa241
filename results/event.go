package results

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// The names of the CUSTOM events in a log. Doors do not show them.
const (
	nameAdmit  = "toolfleet.admit"
	nameClaim  = "toolfleet.claim"
	nameStart  = "toolfleet.start"
	nameCancel = "toolfleet.cancel"
)

// metaNonce marks an append, so that its author knows it again when the
// acknowledgement was lost.
const metaNonce = "toolfleet.nonce"

// newNonce makes one. 128 bits: no two appends will ever meet.
func newNonce() string { return rand.Text() }

// claim is the value of a claim event.
type claim struct {
	Worker
	Attempt int `json:"attempt"`
}

// cancelRequest is the value of a cancel event.
type cancelRequest struct {
	Reason string `json:"reason"`
}

// custom makes a CUSTOM event. Values are ours and always encode. It is an
// [agui.Custom], but for being encoded in one pass: through that type an
// admission with its spec would be encoded, checked and copied twice.
func custom(name, nonce string, value any) []byte {
	type marks struct {
		Nonce string `json:"toolfleet.nonce"`
	}
	return mustJSON(struct {
		Type     agui.EventType `json:"type"`
		Metadata marks          `json:"metadata"`
		Name     string         `json:"name"`
		Value    any            `json:"value"`
	}{agui.TypeCustom, marks{nonce}, name, value})
}

// value reads the value of a CUSTOM event back, in one pass: an admission holds
// a whole spec, and every dispatcher reads every admission.
func value(data []byte, name string, v any) error {
	ev := struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
	}{Value: v}
	if err := json.Unmarshal(data, &ev); err != nil {
		return fmt.Errorf("results: event %s: %w", name, err)
	}
	if ev.Name != name {
		return fmt.Errorf("results: event %q where %s belongs", ev.Name, name)
	}
	return nil
}

// metadata reads an event's metadata and stops there. Encoded events carry it
// before their content, which may be large.
func metadata(data []byte) (agui.Metadata, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("results: event is not an object")
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("results: event: %w", err)
		}
		if name == "metadata" {
			var m agui.Metadata
			if err := dec.Decode(&m); err != nil {
				return nil, fmt.Errorf("results: event metadata: %w", err)
			}
			return m, nil
		}
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			return nil, fmt.Errorf("results: event: %w", err)
		}
	}
	return nil, nil
}

// isOurs reports whether an event carries the nonce.
func isOurs(data []byte, nonce string) bool {
	m, err := metadata(data)
	if err != nil {
		return false
	}
	var got string
	ok, err := m.Get(metaNonce, &got)
	return ok && err == nil && got == nonce
}

// kindOfResult reads how a result says the call ended; "" is success.
func kindOfResult(data []byte) call.Kind {
	m, err := metadata(data)
	if err != nil {
		return call.KindInternal
	}
	var e call.Error
	switch ok, err := m.Get(call.MetaError, &e); {
	case err != nil:
		return call.KindInternal
	case ok:
		return e.Kind
	}
	return ""
}

// Event decodes the entry. An event of a type that only a newer fleet writes
// comes as [agui.Other].
func (e Entry) Event() (agui.Event, error) {
	ev, _, err := agui.Decode(e.Data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("results: entry %d: %w", e.Seq, err)
	case ev == nil:
		return agui.Other{JSON: e.Data}, nil
	}
	return ev, nil
}

// mustJSON encodes values of ours, which always can be.
func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("results: %v", err))
	}
	return raw
}
