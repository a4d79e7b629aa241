package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// File is a file that a tool finds in /workspace/in.
type File struct {
	// Name has no slash, and is neither "." nor "..".
	Name string
	Size int64
	// Open opens it. It is called again when the sandbox is lost before its tool
	// has started and another takes its place. ctx ends with the run.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// feedFiles is feed or converse for a run with files, which the tool waits for.
// A file that cannot be had ends the run.
func (r *run) feedFiles(ctx context.Context, out *wire.Writer, opening []wire.Frame, p Process, last []wire.Frame) {
	ok := r.put(out, opening...)
	for i := 0; i < len(p.Files) && ok; i++ {
		f := p.Files[i]
		err := r.sendFile(ctx, out, f)
		if ok = err == nil; !ok && ctx.Err() == nil {
			r.end(ending{unread: fmt.Errorf("sandbox: file %q of the call: %w", f.Name, err)})
		}
	}
	end := []wire.Frame{{Kind: wire.KindFile, Stream: r.stream, Payload: []byte{byte(wire.FileEnd)}}}
	switch {
	case !ok:
		close(r.fed)
	case p.Input != nil:
		r.converse(out, end, p, last)
	default:
		r.feed(out, end, p.Stdin, last)
	}
}

func (r *run) sendFile(ctx context.Context, out *wire.Writer, f File) (err error) {
	from, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	begin, err := json.Marshal(wire.File{Name: f.Name, Size: f.Size})
	if err != nil {
		return err
	}
	if err := out.Frame(wire.KindFile, r.stream, append([]byte{byte(wire.FileBegin)}, begin...)); err != nil {
		return err
	}
	buf := make([]byte, 1+wire.MaxFileData)
	buf[0] = byte(wire.FileData)
	for rest := f.Size; rest > 0; {
		n, err := io.ReadFull(from, buf[1:1+min(rest, wire.MaxFileData)])
		if err != nil {
			return err
		}
		rest -= int64(n)
		select {
		case <-r.ended:
			return context.Canceled
		default:
		}
		if err := out.Frame(wire.KindFile, r.stream, buf[:1+n]); err != nil {
			return err
		}
	}
	return nil
}

// FilesOut bounds the files that a tool may leave in /workspace/out. The zero
// value asks for none.
type FilesOut struct {
	// Files is how many there may be.
	Files int
	// Bytes is of all together.
	Bytes int64
}

// LeftOut names something in /workspace/out that did not come, and says why.
type LeftOut struct {
	// Name is the path below /workspace/out, or empty for the directory itself.
	Name string
	// Reason is a phrase for people that follows the name, such as "is a
	// symbolic link".
	Reason string
}

// filesOut takes the files that the agent sends. All of it is the reader's.
type filesOut struct {
	limits FilesOut
	begin  func(name string, size int64) io.Writer // the sink's, or nil
	files  int
	bytes  int64
	taken  int64 // bytes that came so far, of all files
	name   string
	rest   int64     // bytes that are still to come of the last file
	to     io.Writer // where they go, or nil
	left   []LeftOut
	more   int
}

// take takes one file frame. What a tool cannot bring about, since its agent
// looks at it first, is a broken rule.
func (o *filesOut) take(f wire.Frame) error {
	if o.limits == (FilesOut{}) || len(f.Payload) == 0 {
		return fmt.Errorf("%w: %v that nobody asked for", wire.ErrFrame, f.Kind)
	}
	op, rest := wire.FileOp(f.Payload[0]), f
	rest.Payload = f.Payload[1:]
	switch op {
	case wire.FileBegin:
		return o.takeBegin(rest)
	case wire.FileData:
		return o.takeData(rest)
	case wire.FileLeft:
		return o.takeLeft(rest)
	}
	return fmt.Errorf("%w: %v with an operation %q", wire.ErrFrame, f.Kind, op)
}

func (o *filesOut) takeBegin(f wire.Frame) error {
	var file wire.File
	if err := wire.Decode(f, &file); err != nil {
		return err
	}
	o.files++
	o.bytes += max(file.Size, 0)
	if o.rest > 0 || file.Size < 0 || file.Size > o.limits.Bytes || o.files > o.limits.Files || o.bytes > o.limits.Bytes ||
		!fs.ValidPath(file.Name) || file.Name == "." || len(file.Name) > maxName {
		return fmt.Errorf("%w: %v that cannot be", wire.ErrFrame, f.Kind)
	}
	o.name, o.rest, o.to = file.Name, file.Size, nil
	if o.begin != nil {
		o.to = o.begin(printable(file.Name), file.Size)
	}
	return nil
}

// maxName is the longest name, each of whose bytes may have become three.
const maxName = 3 * wire.MaxFileName

func (o *filesOut) takeData(f wire.Frame) error {
	n := int64(len(f.Payload))
	if n > o.rest {
		return fmt.Errorf("%w: %v of more bytes than it began with", wire.ErrFrame, f.Kind)
	}
	o.rest -= n
	o.taken += n
	if o.to == nil {
		return nil
	}
	if _, err := o.to.Write(f.Payload); err != nil {
		o.to = nil // the writer's owner knows
	}
	return nil
}

func (o *filesOut) takeLeft(f wire.Frame) error {
	var left wire.Left
	if err := wire.Decode(f, &left); err != nil {
		return err
	}
	if o.rest > 0 && left.Name != o.name || o.more > 0 || left.More < 0 || left.More == 0 && len(o.left) == wire.MaxLeft ||
		len(left.Name) > maxName || len(left.Reason) > maxReason {
		return fmt.Errorf("%w: %v that cannot be", wire.ErrFrame, f.Kind)
	}
	o.rest, o.to = 0, nil
	if left.More > 0 {
		o.more = left.More
		return nil
	}
	o.left = append(o.left, LeftOut{Name: printable(left.Name), Reason: printable(left.Reason)})
	return nil
}

const maxReason = 1 << 10

// printable is s with U+FFFD for everything that is not to be seen: a name may
// hold line ends and escapes, and goes to terminals and logs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
