package sandbox

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

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
