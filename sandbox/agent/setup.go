package agent

import (
	"math"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spareThreads is how many threads the agent makes before the tool runs. At
// its busiest it needs two that run Go (see GOMAXPROCS), one in wait4, and one
// or two in short system calls.
const spareThreads = 4

// setUp makes this process the init of its sandbox.
func setUp(cells bool) {
	// Every signal is taken and dropped. The default of most is to end the
	// process, and a tool with the agent's user may send them; the host's way
	// to end an agent is SIGKILL or the end of its stdin. Dropped and not
	// ignored: an ignored signal would stay ignored in the tool.
	//
	// A tool in a cell cannot reach the agent, and its agent forks three times
	// for each call: handlers that a child has to reset cost each fork 65 system
	// calls.
	if !cells {
		signal.Notify(make(chan os.Signal, 1))
		ignoreTheRest()
	}
	// Whatever the agent was given beyond its stdio is not the tool's. An old
	// kernel that does not know the call has a runtime that gives nothing.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	runtime.GOMAXPROCS(maxProcs(cells))
	reserveThreads(spareThreads)
	if os.Getpid() == 1 {
		limitUser(cells)
		loopbackUp()
		return
	}
	// Without a pid namespace the tool's orphans would go to the host's init,
	// where nobody finds them.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// maxProcs is how many threads run Go at a time. With two, a tool's output flows
// while something else is done. An agent of cells has little to do at a time, and
// more of it is waking threads than work, so one is faster.
func maxProcs(cells bool) int {
	if cells {
		return 1
	}
	return 2
}

// ignoreTheRest ignores the signals that the Go runtime takes no notice of: the
// two or three that C libraries keep for themselves. The kernel drops a signal
// for process 1 that has the default action, but not while the main thread
// blocks it, as Go does whenever it starts a thread: a tool with the agent's
// user that sent one at that moment has killed its agent with it.
func ignoreTheRest() {
	const sigIgnore = 1
	action := struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}{}
	for sig := uintptr(1); sig <= 64; sig++ {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&action)), unsafe.Sizeof(action.mask), 0, 0)
		if errno != 0 || action.handler != 0 {
			continue
		}
		action.handler = sigIgnore
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
	}
}

// reserveThreads makes the runtime start n threads and keep them idle. The Go
// runtime ends the process when it cannot make a thread it wants, and after a
// fork bomb it cannot.
func reserveThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	done.Add(n)
	for range n {
		go func() {
			defer done.Done()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait() // holds this thread until the others have theirs
		}()
	}
	done.Wait()
}

// loopbackUp brings lo up, which a new network namespace leaves down. Where the
// agent may not, the runtime has done it or the sandbox has no loopback: tools
// that need one say so themselves.
func loopbackUp() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq("lo")
	if err != nil || unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr) != nil {
		return
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	_ = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}
