package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// Bounds of what is looked at in a tool's outgoing directory, whatever it holds.
const (
	maxEntries = 10_000
	maxDepth   = 16
)

// asDir opens a directory and nothing else: no link, and no fifo, which would
// wait for its other end.
const asDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openDir opens the directory at a path whose last part the tool may have
// replaced. gVisor follows a link there whatever the flags say, so it is looked
// at first; who could change it meanwhile is dead.
func openDir(path string) (fd int, st unix.Stat_t, err error) {
	if err := unix.Lstat(path, &st); err != nil {
		return 0, st, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, st, unix.ENOTDIR
	}
	fd, err = unix.Open(path, asDir, 0)
	return fd, st, err
}

// isEmpty tells whether there is surely nothing in a directory, or no such
// directory. It is asked at the end of every call, and spares most a thread.
func isEmpty(dir string) bool {
	fd, _, err := openDir(dir)
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [1024]byte
	for {
		n, err := unix.ReadDirent(fd, buf[:])
		if err != nil {
			return false
		}
		if n == 0 {
			return true
		}
		if _, found, _ := unix.ParseDirent(buf[:n], 1, nil); found > 0 {
			return false
		}
	}
}

// do calls f where the tool's files are seen, as a user who may make them.
func (t *tool) do(f func() error) error {
	if t.cell != nil {
		return t.cell.do(f)
	}
	return f()
}

// sendFiles sends what the tool left in its outgoing directory, when somebody
// asked for it and nothing is left that could change it.
func (t *tool) sendFiles(left bool) error {
	p := t.program
	if p.Out == nil {
		return nil
	}
	o := &outbox{limits: *p.Out, send: func(payload []byte) error { return t.out.Later(wire.KindFile, t.stream, payload) }}
	send := func() error {
		if isEmpty(p.out) {
			return nil
		}
		return o.run(p.out)
	}
	switch {
	case left:
		o.leave("", "is not read, since not all processes of the tool ended")
		return o.err
	case t.cell != nil: // its thread has become the tool's user to start it
		return t.cell.do(send)
	case isEmpty(p.out):
		return nil
	}
	done := make(chan error, 1)
	go onNewThread(func() {
		err := dropPrivileges(p.UID, p.GID)
		if err == nil {
			err = send()
		}
		done <- err
	})
	return <-done
}

// outbox sends what a tool left in its outgoing directory.
//
// It runs when no process of the tool is left, on a thread that has the tool's
// user and none of the agent's privileges. Whatever a link, a mount or a name
// may lead to, it is nothing that the tool could not have read and printed
// itself. Nothing is followed all the same: each step of a path is opened by
// itself, as what it must be, so that a file is where its name says.
type outbox struct {
	send   func(payload []byte) error
	limits wire.Out

	dev     uint64 // of the workspace: what is mounted below it is not the tool's
	files   int
	bytes   int64
	entries int
	left    int // told by a frame of its own
	more    int // and not told yet
	err     error
	buf     *[wire.MaxChunk]byte
}

// run sends what is in dir. An error is the connection's.
func (o *outbox) run(dir string) error {
	fd, st, err := openDir(dir)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	var workspace unix.Stat_t
	if err == nil {
		err = unix.Stat(path.Dir(dir), &workspace)
	}
	if err != nil {
		o.leave("", reason(err))
		return o.err
	}
	if o.dev = workspace.Dev; st.Dev != o.dev {
		o.leave("", "is on another file system")
		return errors.Join(o.err, unix.Close(fd))
	}
	o.buf = chunks.Get().(*[wire.MaxChunk]byte)
	defer chunks.Put(o.buf)
	o.directory(fd, "", 1)
	if o.more > 0 && o.err == nil {
		o.json(wire.FileLeft, wire.Left{More: o.more})
	}
	return o.err
}

// directory sends what is in the directory fd, which it closes.
func (o *outbox) directory(fd int, name string, depth int) {
	dir := os.NewFile(uintptr(fd), name)
	defer func() { _ = dir.Close() }()
	// One more than will be looked at, to know that there are more. A number
	// bounds what all levels hold in memory together.
	room := maxEntries - o.entries
	names, err := dir.Readdirnames(room + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		o.leave(name, reason(err))
	}
	many := len(names) > room
	names = names[:min(len(names), room)]
	o.entries += len(names)
	slices.Sort(names)
	for _, base := range names {
		if o.entry(fd, base, path.Join(name, base), depth); o.err != nil {
			return
		}
	}
	if many {
		o.leave(name, fmt.Sprintf("has more files and directories than the %d that are looked at", maxEntries))
	}
}

// entry sends one file or directory, or says why not.
func (o *outbox) entry(dir int, base, name string, depth int) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		o.leave(name, reason(err))
		return
	}
	switch {
	case len(name) > wire.MaxFileName:
		o.leave(name, fmt.Sprintf("has a path of more than %d bytes", wire.MaxFileName))
	case st.Dev != o.dev:
		o.leave(name, "is on another file system")
	case st.Mode&unix.S_IFMT == unix.S_IFREG:
		o.regular(dir, base, name, st.Size)
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		o.leave(name, "is a symbolic link")
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		o.leave(name, "is no regular file")
	case depth == maxDepth:
		o.leave(name, fmt.Sprintf("is more than %d directories deep", maxDepth))
	default:
		fd, err := unix.Openat(dir, base, asDir, 0)
		if err != nil {
			o.leave(name, reason(err))
			return
		}
		o.directory(fd, name, depth+1)
	}
}

// regular sends a file.
func (o *outbox) regular(dir int, base, name string, size int64) {
	switch {
	case o.files == o.limits.Files:
		o.leave(name, fmt.Sprintf("is beyond the limit of %d files", o.limits.Files))
		return
	case size > o.limits.Bytes-o.bytes:
		o.leave(name, fmt.Sprintf("has %d bytes; all files together may have %d", size, o.limits.Bytes))
		return
	}
	fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		o.leave(name, reason(err))
		return
	}
	defer func() { _ = unix.Close(fd) }()
	o.files++
	o.bytes += size
	o.json(wire.FileBegin, wire.File{Name: name, Size: size})
	for rest := size; rest > 0 && o.err == nil; {
		n, err := unix.Read(fd, o.buf[1:min(int64(len(o.buf)), rest+1)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			o.leave(name, reason(err))
			return
		case n == 0:
			o.leave(name, "has fewer bytes than it said")
			return
		}
		rest -= int64(n)
		o.buf[0] = byte(wire.FileData)
		o.err = o.send(o.buf[:n+1])
	}
}

// leave tells of what is not sent: the first by name, and of the rest how many.
func (o *outbox) leave(name, reason string) {
	if o.err != nil {
		return
	}
	if o.left == wire.MaxLeft {
		o.more++
		return
	}
	o.left++
	o.json(wire.FileLeft, wire.Left{Name: name[:min(len(name), wire.MaxFileName)], Reason: reason})
}

// json sends an operation. What is no UTF-8 in a name becomes U+FFFD on the way.
func (o *outbox) json(op wire.FileOp, v any) {
	payload, err := json.Marshal(v)
	if err == nil {
		err = o.send(append([]byte{byte(op)}, payload...))
	}
	o.err = errors.Join(o.err, err)
}

// reason says in a phrase why something could not be read.
func reason(err error) string {
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return "is no directory"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "may not be read: permission denied"
	}
	return "could not be read: " + strings.TrimSpace(err.Error())
}
