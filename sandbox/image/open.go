package image

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Open opens images that others made, for containerd to import. path is an OCI
// layout, as a directory or a tar, or a file that docker save wrote; a tar may
// be gzipped. With a name the archive must hold one image, and gets that name.
//
// What is read is a tar whose parts have been checked on their way: bounded,
// plain files, with the contents that their digests say, and complete. Reading
// fails at the latest where it would end, and whoever imports has recorded
// nothing by then. Close ends it early.
func Open(path, name string) (io.ReadCloser, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("image: open archive: %w", err)
	}
	source := fromTar
	if info.IsDir() {
		source = fromDirectory
	}
	r, w := io.Pipe()
	o := &opened{PipeReader: r, done: make(chan struct{})}
	go func() {
		defer close(o.done)
		c := newCheck(w, name)
		err := source(path, c.add)
		if err == nil {
			err = c.finish()
		}
		if err != nil {
			err = fmt.Errorf("image: %s: %w", path, err)
		}
		w.CloseWithError(err)
	}()
	return o, nil
}

// opened is the reading end of a check that goes on behind it.
type opened struct {
	*io.PipeReader
	done chan struct{}
}

func (o *opened) Close() error {
	err := o.PipeReader.Close()
	<-o.done
	return err
}

// visit is called with every entry of an archive.
type visit func(*tar.Header, io.Reader) error

func fromTar(path string, each visit) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := decompressed(f)
	if err != nil {
		return err
	}
	in := tar.NewReader(plain)
	for {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("it is no tar archive, or a broken one: %w", err)
		}
		if err := each(h, in); err != nil {
			return err
		}
	}
}

func decompressed(r io.Reader) (io.Reader, error) {
	head := bufio.NewReader(r)
	if magic, err := head.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return head, nil
	}
	return gzip.NewReader(head)
}

// fromDirectory does not follow links: one is an entry like any other, and
// refused.
func fromDirectory(path string, each visit) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%q is no plain file", name)
		}
		return each(header(name, info.Size()), f)
	})
}
