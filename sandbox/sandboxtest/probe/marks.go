package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// leave leaves a mark wherever this tool can write, and processes that hold on
// to it, and prints what it left.
func leave(args []string) int {
	m := args[0]
	left := func(what string, err error) {
		if err == nil {
			fmt.Println("left", what)
		}
	}
	for _, dir := range []string{"/", "/tmp", "/workspace", "/home/tool", "/dev", "/dev/shm", "/dev/mqueue", "/sys", "/proc", "/.toolfleet", "/.toolfleet/empty", "/run", "/var/tmp"} {
		left(dir, os.WriteFile(filepath.Join(dir, m), []byte(m), 0o666))
		left(dir+"/", os.Mkdir(filepath.Join(dir, "d"+m), 0o777))
	}
	left("memory", shareMemory(m))
	ctx := context.Background()
	var listen net.ListenConfig
	_, err := listen.Listen(ctx, "unix", "@"+m)
	left("abstract socket", err)
	_, err = listen.Listen(ctx, "tcp", "127.0.0.1:4242")
	left("port", err)
	left("host name", unix.Sethostname([]byte(m)))
	left("mode", os.Chmod("/dev/pts/ptmx", 0o600))
	_, err = unix.AddKey("user", m, []byte(m), unix.KEY_SPEC_USER_KEYRING)
	left("key", err)
	left("priority", unix.Setpriority(unix.PRIO_PROCESS, 1, 5))
	for _, name := range []string{"nice", "setsid"} {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", "hold-on", m, name)
		cmd.Env = append(os.Environ(), m+"=1")
		cmd.Stdout = os.Stdout
		left("process "+name, cmd.Start())
	}
	return 0
}

// shareMemory makes a segment of System V shared memory that begins with m.
func shareMemory(m string) error {
	id, err := unix.SysvShmGet(4242, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		return err
	}
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return err
	}
	copy(b, m)
	return nil
}

// look reads a mark on stdin and looks for it in all that this tool can see.
func look() int {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	m, seen := string(text), 0
	found := func(where string) { fmt.Println("found it in", where) }
	for _, kv := range os.Environ() {
		if strings.Contains(kv, m) || strings.HasPrefix(kv, "MARK=") {
			found("the environment")
		}
	}
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	_ = filepath.WalkDir("/", func(path string, e fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(path, self) || strings.HasPrefix(path, "/proc/self/") || strings.HasPrefix(path, "/proc/thread-self/") {
			return nil
		}
		seen++
		if strings.Contains(path, m) {
			found(path)
		}
		if e.Type().IsRegular() && contains(path, m) {
			found(path)
		}
		return nil
	})
	if name, err := os.Hostname(); err == nil && name == m {
		found("the host name")
	}
	var dial net.Dialer
	if _, err := dial.DialContext(context.Background(), "unix", "@"+m); err == nil {
		found("an abstract socket")
	}
	if _, err := dial.DialContext(context.Background(), "tcp", "127.0.0.1:4242"); err == nil {
		found("a port")
	}
	if _, err := unix.SysvShmGet(4242, 4096, 0); err == nil {
		found("shared memory")
	}
	if n, err := others(); err != nil || n > 0 {
		found(fmt.Sprintf("%d other processes (%v)", n, err))
	}
	fmt.Printf("%s%d files\n", "looked at ", seen)
	return 0
}

// contains reports whether the head of a file has m in it. A file that blocks,
// as some of /proc do, is not waited for.
func contains(path, m string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 256<<10)
	n, err := unix.Read(fd, buf)
	return err == nil && bytes.Contains(buf[:n], []byte(m))
}

// others counts the processes that are neither process 1 nor this one.
func others() (n int, err error) {
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		name := e.Name()
		if strings.Trim(name, "0123456789") == "" && name != "1" && name != fmt.Sprint(os.Getpid()) {
			n++
		}
	}
	return n, err
}

// holdOn lives on, in a session of its own, with a mark in its memory.
func holdOn([]string) int {
	_, _ = unix.Setsid()
	_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return 1
	}
	return stop()
}

// use uses so many bytes of memory.
func use(args []string) int {
	b := make([]byte, atoi(args[0]))
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	return 0
}
