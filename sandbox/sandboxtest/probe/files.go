package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leavings are the ways to leave something in the outgoing directory. They run
// in the workspace.
var leavings = map[string]func() error{
	"plain": func() error {
		return firstError(
			os.WriteFile("out/a.txt", []byte("hello"), 0o600),
			os.WriteFile("out/empty", nil, 0o444),
			os.Mkdir("out/sub", 0o700),
			os.WriteFile("out/sub/b.bin", bytes.Repeat([]byte("0123456789abcdef"), 20_000), 0o640),
		)
	},
	"one": func() error { return os.WriteFile("out/one", []byte("kept"), 0o600) },
	"tricks": func() error {
		l, err := net.Listen("unix", "out/socket")
		if err == nil {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			err = l.Close()
		}
		return firstError(err,
			os.Symlink("/proc/self/environ", "out/link"),
			os.Symlink("/", "out/root"),
			os.Symlink("../out", "out/loop"),
			unix.Mkfifo("out/fifo", 0o666),
			os.WriteFile("secret", []byte("linked"), 0o600),
			os.Link("secret", "out/hard"),
			os.WriteFile("out/locked", []byte("x"), 0),
			os.WriteFile("out/sparse", nil, 0o600),
			os.Truncate("out/sparse", 1<<40),
			os.WriteFile("out/line\nend\x1b[31m", []byte("x"), 0o600),
			os.WriteFile("out/\xff\xfe", []byte("x"), 0o600),
			os.WriteFile("out/"+strings.Repeat("n", 255), []byte("x"), 0o600),
			os.Mkdir("out/shut", 0),
		)
	},
	"link":   func() error { return firstError(os.Remove("out"), os.Symlink("/etc", "out")) },
	"fifo":   func() error { return firstError(os.Remove("out"), unix.Mkfifo("out", 0o666)) },
	"file":   func() error { return firstError(os.Remove("out"), os.WriteFile("out", []byte("x"), 0o600)) },
	"none":   func() error { return os.Remove("out") },
	"shut":   func() error { return firstError(os.WriteFile("out/x", nil, 0o600), os.Chmod("out", 0)) },
	"closed": func() error { return firstError(os.WriteFile("out/x", []byte("x"), 0o600), os.Chmod(".", 0)) },
	"many": func() error {
		for n := range 100_000 {
			f, err := os.Create("out/" + strconv.Itoa(n))
			if err != nil {
				return nil //nolint:nilerr // its disk is full
			}
			_ = f.Close()
		}
		return nil
	},
	"nested": func() error {
		err := os.Chdir("out")
		for range 1000 {
			err = firstError(err, unix.Mkdir("d", 0o700), unix.Chdir("d"))
		}
		return firstError(err, os.WriteFile("x", []byte("x"), 0o600))
	},
}

// leaveFiles leaves files, then exits with a code or waits for ever.
func leaveFiles(args []string) int {
	if err := leavings[args[0]](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 90
	}
	if args[1] == "stop" {
		fmt.Fprintln(os.Stderr, "left")
		return stop()
	}
	return atoi(args[1])
}

// firstError stops nothing: its arguments have all been done.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// seeFiles prints what is in the incoming directory, and writes to it.
func seeFiles() int {
	entries, err := os.ReadDir("in")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, e := range entries {
		data, err := os.ReadFile("in/" + e.Name())
		var st unix.Stat_t
		err = firstError(err, unix.Stat("in/"+e.Name(), &st), os.WriteFile("in/"+e.Name(), nil, 0), os.Remove("in/"+e.Name()))
		if err != nil || int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
			fmt.Println(err, st.Uid, st.Gid)
			return 1
		}
		fmt.Printf("%s %d %x\n", e.Name(), len(data), sha256.Sum256(data))
	}
	_, _ = io.Copy(os.Stdout, os.Stdin)
	return 0
}
