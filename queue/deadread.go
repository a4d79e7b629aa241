package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
)

// Get reads the letter about a call, or fails with ErrNoLetter.
func (d *DeadLetters) Get(ctx context.Context, tenant string, key call.Key) (Letter, error) {
	msg, err := d.find(ctx, tenant, key)
	if err != nil {
		return Letter{}, err
	}
	return readLetter(msg)
}

// Drop removes the letter about a call, or fails with ErrNoLetter.
func (d *DeadLetters) Drop(ctx context.Context, tenant string, key call.Key) error {
	msg, err := d.find(ctx, tenant, key)
	if err != nil {
		return err
	}
	switch err := drop(ctx, d.stream, msg.Sequence); {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return ErrNoLetter // somebody else was first
	case err != nil:
		return fmt.Errorf("queue: drop the dead letter of %s: %w", key, err)
	}
	return nil
}

// find finds the message about a call, whatever its class and tool are.
func (d *DeadLetters) find(ctx context.Context, tenant string, key call.Key) (*jetstream.RawStreamMsg, error) {
	if _, err := call.ParseKey(string(key)); err != nil || !call.ValidTenant(tenant) {
		return nil, ErrNoLetter
	}
	msg, err := d.stream.GetLastMsgForSubject(ctx, deadPrefix+"*."+tenant+".*."+string(key))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, ErrNoLetter
	case err != nil:
		return nil, fmt.Errorf("queue: dead letter of %s: %w", key, err)
	}
	return msg, nil
}

// LetterFilter says which letters a list holds.
type LetterFilter struct {
	// Tool is the name of a tool; empty is any.
	Tool string
	// After continues behind a letter with this cursor; 0 begins at the oldest.
	After uint64
	// Limit is at most 1000; 0 means 100.
	Limit int
}

// The bounds of a list.
const (
	defaultLetters = 100
	maxLetters     = 1000
)

// List lists a tenant's letters, oldest first: those are the next to expire.
// The argument texts, which may be long, are left out.
func (d *DeadLetters) List(ctx context.Context, tenant string, f LetterFilter) ([]Letter, error) {
	if !call.ValidTenant(tenant) {
		return nil, fmt.Errorf("queue: %q is not a tenant", tenant)
	}
	tool := "*"
	if f.Tool != "" {
		if tool = f.Tool; !call.ValidToolName(tool) {
			return []Letter{}, nil // no tool has such a name
		}
	}
	if f.Limit <= 0 {
		f.Limit = defaultLetters
	}
	filter := jetstream.WithGetMsgSubject(deadPrefix + "*." + tenant + "." + tool + ".*")
	letters := []Letter{}
	for seq := f.After + 1; len(letters) < min(f.Limit, maxLetters); {
		msg, err := d.stream.GetMsg(ctx, seq, filter)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return letters, nil
		case err != nil:
			return nil, fmt.Errorf("queue: list dead letters: %w", err)
		}
		l, err := readLetter(msg)
		if err != nil {
			return nil, err
		}
		l.Job.Call.Arguments = ""
		letters = append(letters, l)
		seq = msg.Sequence + 1
	}
	return letters, nil
}

// Recent returns letters of all tenants, the last filed first: at most n, and
// only of the last maxRecent places, so that letters that were dropped behind
// them do not make this a search. It says also how many letters there are. The
// argument texts are left out.
func (d *DeadLetters) Recent(ctx context.Context, n int) (letters []Letter, all int, err error) {
	info, err := d.stream.Info(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("queue: recent dead letters: %w", err)
	}
	last, first := info.State.LastSeq, max(info.State.FirstSeq, 1)
	for seq := last; seq >= first && len(letters) < n && last-seq < maxRecent; seq-- {
		msg, err := d.stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // dropped
		}
		if err != nil {
			return nil, 0, fmt.Errorf("queue: recent dead letters: %w", err)
		}
		l, err := readLetter(msg)
		if err != nil {
			return nil, 0, err
		}
		l.Job.Call.Arguments = ""
		letters = append(letters, l)
	}
	return letters, int(info.State.Msgs), nil
}

// maxRecent bounds how many places Recent looks at.
const maxRecent = 16

// Len is how many letters there are, of all tenants.
func (d *DeadLetters) Len(ctx context.Context) (int, error) {
	info, err := d.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("queue: count dead letters: %w", err)
	}
	return int(info.State.Msgs), nil
}

// readLetter reads a message. Members that only a newer fleet writes are passed
// over: what a redrive needs is the call, which every version has.
func readLetter(msg *jetstream.RawStreamMsg) (Letter, error) {
	var l Letter
	if err := json.Unmarshal(msg.Data, &l); err != nil {
		return Letter{}, fmt.Errorf("queue: dead letter %s: %w", msg.Subject, err)
	}
	l.Cursor = msg.Sequence
	return l, nil
}
