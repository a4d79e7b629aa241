package containerd

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// counters are the files of one group that tell how a tool ended. They are read
// for every call, and opening one costs three times as much as reading it; so
// each stays open from the first time on. A file of a group that is gone fails
// to be read, open or not. The zero value is ready; it is safe for concurrent
// use.
type counters struct {
	mu   sync.Mutex // guards open
	open map[string]*os.File
}

// file returns the open file at path, for writing as well where that is allowed.
func (c *counters) file(path string) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.open[path]; f != nil {
		return f, nil
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) { // most are only for reading
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if c.open == nil {
		c.open = make(map[string]*os.File)
	}
	// Blocking, so that the runtime does not put it into its poller.
	f := os.NewFile(uintptr(fd), path)
	c.open[path] = f
	return f, nil
}

// read reads a whole file at one stroke, of which a kilobyte is enough.
func (c *counters) read(path string) ([]byte, error) {
	f, err := c.file(path)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 1024)
	n, err := f.ReadAt(buf, 0)
	if n > 0 {
		err = nil // short of 1024 is io.EOF
	}
	return buf[:n], err
}

// keyed reads one value of a file of "key value" lines, 0 when it is not there.
func (c *counters) keyed(path, key string) int64 {
	raw, err := c.read(path)
	if err != nil {
		return 0
	}
	return keyed(raw, key)
}

// int reads a file of one number, 0 when it is not there.
func (c *counters) int(path string) int64 {
	raw, err := c.read(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n
}

// close closes the files. They may be opened again.
func (c *counters) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.open {
		_ = f.Close()
	}
	c.open = nil
}

// keyed finds one value among "key value" lines.
func keyed(raw []byte, key string) int64 {
	for line := range bytes.Lines(raw) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if name == key {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}
