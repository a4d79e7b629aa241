package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// stdio is the pair of FIFOs between us and the agent, with the shim in the
// middle. They are opened without blocking and read through the runtime's
// poller, so that a sandbox costs no thread and closing unblocks a reader.
type stdio struct {
	dir     string
	in, out *os.File
	close   func()
}

func (s *stdio) inPath() string  { return filepath.Join(s.dir, "in") }
func (s *stdio) outPath() string { return filepath.Join(s.dir, "out") }

// makeStdio makes the FIFOs and opens our ends. The shim opens its own while
// the task is created; until then our write end is open for reading too, since
// a FIFO without a reader cannot be opened for writing.
func makeStdio(dir string) (*stdio, error) {
	s := &stdio{dir: dir}
	s.close = sync.OnceFunc(s.closeFiles)
	for _, path := range []string{s.inPath(), s.outPath()} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return nil, fmt.Errorf("containerd: make fifo: %w", err)
		}
	}
	var err error
	if s.in, err = openFIFO(s.inPath(), unix.O_RDWR); err != nil {
		return nil, err
	}
	if s.out, err = openFIFO(s.outPath(), unix.O_RDONLY); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// connected is called when the shim has opened its ends. From now on only the
// agent's side holds the other ends, so that its end is seen: a read returns
// io.EOF and a write EPIPE.
func (s *stdio) connected() error {
	in, err := openFIFO(s.inPath(), unix.O_WRONLY)
	if err != nil {
		return err
	}
	old := s.in
	s.in = in
	return old.Close()
}

func (s *stdio) closeFiles() {
	if s.in != nil {
		_ = s.in.Close()
	}
	if s.out != nil {
		_ = s.out.Close()
	}
}

func openFIFO(path string, mode int) (*os.File, error) {
	fd, err := unix.Open(path, mode|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil, errors.New("containerd: the shim does not read the agent's stdin")
	}
	if err != nil {
		return nil, fmt.Errorf("containerd: open fifo: %w", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
