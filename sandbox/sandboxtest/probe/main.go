// Command probe is the tool that package sandboxtest runs in sandboxes: its
// first argument says how to behave, or to misbehave.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Report is what mode "report" prints: how the sandbox looks from inside.
type Report struct {
	Env         []string
	Dir         string
	UID, GID    int
	Groups      []int
	PID, SID    int
	Status      map[string]string // of /proc/self/status
	OOMScoreAdj string
	Files       []string // what the open files are
	Core        uint64   // the hard limit on core files
	NoFile      uint64   // the hard limit on open files
}

var modes = map[string]func(args []string) int{
	"cat":         func([]string) int { return cat() },
	"exit":        func(args []string) int { return atoi(args[0]) },
	"signal":      func(args []string) int { return raise(atoi(args[0])) },
	"say":         say,
	"stop":        func([]string) int { return stop() },
	"close-stdin": func([]string) int { return closeStdin() },
	"flood":       flood,
	"bytes":       func([]string) int { return allBytes() },
	"secrets":     secrets,
	"report":      func([]string) int { return report() },
	"message":     message,
	"long-line":   func([]string) int { return longLine() },
	"hold":        hold,
	"tree":        tree,
	"forks":       forks,
	"eat":         func([]string) int { return eat() },
	"fill":        fill,
	"attack":      func([]string) int { return attack() },
	"reopen":      func([]string) int { return reopen() },
	"write":       write,
	"exchange":    exchange,
	"clog":        clog,
	"crowd":       crowd,
	"clogmany":    clogmany,
	"part":        part,
	"get":         get,
	"keep":        keep,

	"balloon":  balloon,
	"read-all": func([]string) int { return readAll() },
	"look-up":  lookUp,
	"spin":     spin,
	"open":     openFiles,
	"watches":  func([]string) int { return watches() },
	"locks":    locks,
	"deep":     deep,
	"links":    links,
	"sparse":   func([]string) int { return sparse() },
	"mapped":   func([]string) int { return mapped() },
	"places":   func([]string) int { return places() },
	"fill-all": fillAll,
	"work":     func([]string) int { return work() },

	"leave":   leave,
	"look":    func([]string) int { return look() },
	"hold-on": holdOn,
	"use":     use,

	"leave-files": leaveFiles,
	"see-files":   func([]string) int { return seeFiles() },

	"refork":        refork,
	"stopped":       stopped,
	"stopped-child": stoppedChild,
	"vforked":       vforked,
	"traced":        traced,
	"deaf":          deaf,
	"listen":        listen,
	"graceful":      graceful,
}

func main() {
	mode := modes[os.Args[1]]
	if mode == nil {
		fmt.Fprintln(os.Stderr, "no such mode")
		os.Exit(99)
	}
	os.Exit(mode(os.Args[2:]))
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func cat() int {
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		return 1
	}
	return 0
}

func raise(sig int) int {
	signal.Reset()
	if err := unix.Kill(os.Getpid(), unix.Signal(sig)); err != nil {
		return 1
	}
	return stop()
}

// stop waits for ever.
func stop() int {
	for {
		_ = unix.Pause()
	}
}

// say writes each argument: "otext" to stdout, "etext" to stderr, and "mtext"
// with a newline to the messages.
func say(args []string) int {
	messages := os.NewFile(3, "messages")
	for _, a := range args {
		text := a[1:]
		switch a[0] {
		case 'o':
			fmt.Fprint(os.Stdout, text)
		case 'e':
			fmt.Fprint(os.Stderr, text)
		case 'm':
			fmt.Fprintln(messages, text)
		}
	}
	return 0
}

// closeStdin closes stdin, says so, and lives until its stdout is full: long
// enough that the sender of its stdin meets a closed pipe.
func closeStdin() int {
	_ = os.Stdin.Close()
	return flood([]string{"500000"})
}

// flood writes so many bytes to stdout; then, if asked, to stderr.
func flood(args []string) int {
	for i, f := range []*os.File{os.Stdout, os.Stderr} {
		if len(args) <= i {
			return 0
		}
		w := bufio.NewWriterSize(f, 64<<10)
		line := []byte(strings.Repeat("x", 63) + "\n")
		for left := atoi(args[i]); left > 0; left -= len(line) {
			if _, err := w.Write(line[:min(left, len(line))]); err != nil {
				return 1
			}
		}
		if err := w.Flush(); err != nil {
			return 1
		}
	}
	return 0
}

func allBytes() int {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	if _, err := os.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}

func report() int {
	r := Report{Env: os.Environ(), UID: os.Getuid(), GID: os.Getgid(), PID: os.Getpid(), Status: map[string]string{}}
	r.Dir, _ = os.Getwd()
	r.Groups, _ = os.Getgroups()
	r.SID, _ = unix.Getsid(0)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 1
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		r.Status[name] = strings.TrimSpace(value)
	}
	adj, _ := os.ReadFile("/proc/self/oom_score_adj")
	r.OOMScoreAdj = string(bytes.TrimSpace(adj))
	for fd := range 64 {
		if name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil {
			kind, _, _ := strings.Cut(name, ":")
			r.Files = append(r.Files, strconv.Itoa(fd)+" "+kind)
		}
	}
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &limit)
	r.Core = limit.Max
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	r.NoFile = limit.Max
	if json.NewEncoder(os.Stdout).Encode(r) != nil {
		return 1
	}
	return 0
}

// message writes its arguments to the messages as they are.
func message(args []string) int {
	fmt.Fprint(os.NewFile(3, "messages"), strings.Join(args, ""))
	return 0
}

// longLine writes one line to the messages that is longer than any may be.
func longLine() int {
	fmt.Fprintln(os.NewFile(3, "messages"), strings.Repeat("x", 600<<10))
	return 0
}

// spawn starts this program once more, in a session of its own.
func spawn(args ...string) (int, error) {
	return syscall.ForkExec("/proc/self/exe", append([]string{"probe"}, args...), &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2, 3}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// hold leaves a child behind that holds all pipes, and exits.
func hold(args []string) int {
	if _, err := spawn(append([]string{"stop"}, args...)...); err != nil {
		return 1
	}
	fmt.Print("said before the end")
	return 0
}

// tree starts children that start children, to a depth, each in a session of
// its own, and orphans the last of them. The last argument marks them all.
func tree(args []string) int {
	depth, mark := atoi(args[0]), args[1]
	if depth > 0 {
		for range 2 {
			if _, err := spawn("tree", strconv.Itoa(depth-1), mark); err != nil {
				return 1
			}
		}
		if depth == 1 {
			return 0 // its children are orphans now
		}
	} else {
		fmt.Fprint(os.Stderr, "leaf\n")
	}
	return stop()
}

// forks starts children until a fork is refused; and then, if asked to go on,
// for ever.
func forks(args []string) int {
	refused := false
	for !refused || args[0] == "on" {
		if _, err := spawn("stop", args[1]); err != nil {
			refused = true
		}
	}
	return 1
}

func eat() int {
	var all [][]byte
	for {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = 1
		}
		all = append(all, b)
		if len(all) > 1<<20 {
			return 1
		}
	}
}

// fill fills a directory with files of a size each, until there is no space.
func fill(args []string) int {
	block := make([]byte, atoi(args[1]))
	for i := 0; ; i++ {
		if err := os.WriteFile(args[0]+"/f"+strconv.Itoa(i), block, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}

// keep writes a file of so many MiB.
func keep(args []string) int {
	f, err := os.Create(args[0])
	block := make([]byte, 1<<20)
	for n := atoi(args[1]); n > 0 && err == nil; n-- {
		_, err = f.Write(block)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// reopen writes through /dev/stdout, as shell scripts do.
func reopen() int {
	f, err := os.OpenFile("/proc/self/fd/1", os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprint(f, "reopened")
	return 0
}

// write writes a file into the directory that a variable names.
func write(args []string) int {
	dir := os.Getenv(args[0])
	if args[0] == "PWD" {
		dir = "."
	}
	if err := os.WriteFile(dir+"/file", []byte("x"), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
