package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The agent has capabilities and the connection to the host; whoever has the
// agent has both.
var agentAttempts = []attempt{
	{name: "ptrace-agent", opens: "the tool steers the agent", try: func(bait) outcome {
		return first(judge(unix.PtraceAttach(1), "traces the agent"), judge(unix.PtraceSeize(1), "traces the agent"))
	}},
	{name: "read-agent-memory", opens: "the tool reads what the agent holds", try: func(bait) outcome {
		return readable(agent + "/mem")
	}},
	{name: "write-agent-memory", opens: "the tool changes the agent", try: func(bait) outcome { return writable(agent + "/mem") }},
	{name: "process-vm-readv-agent", opens: "the tool reads the agent's memory", try: func(bait) outcome { return agentMemory(false) }},
	{name: "process-vm-writev-agent", opens: "the tool writes the agent's memory", try: func(bait) outcome { return agentMemory(true) }},
	{name: "agent-maps", opens: "the tool learns where the agent's code is", try: func(bait) outcome {
		return first(readable(agent+"/maps"), readable(agent+"/auxv"), readable(agent+"/pagemap"))
	}},
	{name: "agent-environment", opens: "the tool reads the agent's environment", try: func(bait) outcome { return readable(agent + "/environ") }},
	{name: "agent-files", opens: "the tool gets at the agent's open files", try: agentFiles},
	{name: "agent-stdio", opens: "the tool speaks to the host in the agent's place", try: func(bait) outcome {
		return each([]int{0, 1, 2}, func(fd int) outcome {
			path := agent + "/fd/" + strconv.Itoa(fd)
			return first(writable(path), readable(path))
		})
	}},
	{name: "agent-root-and-cwd", opens: "the tool walks through the agent's directories", try: func(bait) outcome {
		return each([]string{"/root", "/cwd"}, func(name string) outcome {
			_, err := os.ReadDir(agent + name + "/")
			return judge(err, "listed "+agent+name)
		})
	}},
	{name: "pidfd-getfd-agent", opens: "the tool takes the agent's open files", try: pidfdGetfd},
	{name: "signal-agent", opens: "the tool stops or ends the agent", try: signalAgent},
	{name: "pidfd-signal-agent", opens: "the tool ends the agent by its pidfd", try: func(bait) outcome {
		fd, err := unix.PidfdOpen(1, 0)
		if err != nil {
			return judge(err, "")
		}
		return judge(unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0), "sent the agent a signal")
	}},
	{name: "prlimit-agent", opens: "the tool takes files or memory from the agent", try: func(bait) outcome {
		limit := unix.Rlimit{Cur: 3, Max: 3}
		return judge(unix.Prlimit(1, unix.RLIMIT_NOFILE, &limit, nil), "set the agent's limit")
	}},
	{name: "schedule-agent", opens: "the tool takes the processor from the agent", try: scheduleAgent},
	{name: "kcmp-agent", opens: "the tool compares kernel pointers with the agent's", try: func(bait) outcome {
		_, err := call(unix.SYS_KCMP, uintptr(os.Getpid()), 1, 0, 0, 0)
		return judge(err, "compared")
	}},
	{name: "overwrite-agent-by-exe", opens: "the tool overwrites the agent's or runc's binary (CVE-2019-5736)", try: overwriteByExe},
	{name: "agent-oom-score", opens: "the tool makes the kernel end the agent before itself", try: func(bait) outcome {
		return first(writable(agent+"/oom_score_adj"), writable(agent+"/oom_adj"))
	}},
	{name: "see-host-processes", opens: "the tool sees processes that are not its own", try: seeProcesses},
	{name: "rearrange-memory", opens: "the tool disguises itself for later checks (PR_SET_MM)", try: func(bait) outcome {
		_, err := call(unix.SYS_PRCTL, unix.PR_SET_MM, unix.PR_SET_MM_START_BRK, 0x1000)
		return judge(err, "changed its memory's layout")
	}},
}

// agentMemory reads or writes at an address that static Go programs have.
func agentMemory(write bool) outcome {
	var b [8]byte
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	remote := []unix.RemoteIovec{{Base: 0x400000, Len: len(b)}}
	if write {
		_, err := unix.ProcessVMWritev(1, local, remote, 0)
		return judge(err, "wrote memory")
	}
	_, err := unix.ProcessVMReadv(1, local, remote, 0)
	return judge(err, "read memory")
}

func agentFiles(bait) outcome {
	entries, err := os.ReadDir(agent + "/fd")
	if err == nil && len(entries) == 0 {
		err = errors.New("the list is empty")
	}
	return judge(err, fmt.Sprintf("saw %d open files", len(entries)))
}

func pidfdGetfd(bait) outcome {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return judge(err, "")
	}
	got, err := unix.PidfdGetfd(fd, 1, 0)
	return descriptor(uintptr(got), err, "the agent's stdout")
}

// signalAgent sends everything but 0. That the agent lives is seen from the
// rest of this program's answers.
func signalAgent(bait) outcome {
	signals := []unix.Signal{unix.SIGSTOP, unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV, unix.SIGQUIT, unix.SIGTSTP}
	return each(signals, func(sig unix.Signal) outcome { return judge(unix.Kill(1, sig), "sent "+sig.String()) })
}

func scheduleAgent(bait) outcome {
	param := int32(1)
	_, fifo := call(unix.SYS_SCHED_SETSCHEDULER, 1, 1, uintptr(unsafe.Pointer(&param)))
	var set unix.CPUSet
	set.Set(0)
	return first(
		judge(unix.Setpriority(unix.PRIO_PROCESS, 1, 19), "made the agent nice"),
		judge(unix.SchedSetaffinity(1, &set), "moved the agent"),
		judge(fifo, "changed the agent's scheduling"),
	)
}

// overwriteByExe opens the binary for writing by every link to it: the link
// follows to the file on the host, whatever is mounted where.
func overwriteByExe(bait) outcome {
	return first(writable(agent+"/exe"), writable("/.toolfleet/agent"), writable(self), rewriteThroughFD(agent+"/exe"), rewriteThroughFD("/.toolfleet/agent"))
}

// rewriteThroughFD opens a file for reading, and what it got for writing.
func rewriteThroughFD(path string) outcome {
	f, err := os.Open(path)
	if err != nil {
		return denied(err)
	}
	defer f.Close()
	return writable("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// seeProcesses: everything in /proc descends from the first process, or from
// whoever started this one.
func seeProcesses(bait) outcome {
	ours := map[string]bool{"1": true}
	for pid := strconv.Itoa(os.Getpid()); pid != "0" && pid != ""; pid = parent(pid) {
		ours[pid] = true
	}
	all := pids()
	for _, pid := range all {
		for at := pid; !ours[at]; at = parent(at) {
			if at == "0" {
				return open("process %s came from elsewhere", pid)
			}
			if at == "" {
				break // it has ended
			}
		}
	}
	if os.Getpid() > 1<<15 {
		return open("our own number is %d, as in the host's namespace", os.Getpid())
	}
	return denied(fmt.Errorf("%d processes, all of this sandbox", len(all)))
}

// parent is the parent of a process, "0" when it is not in this namespace, and
// empty when the process has ended. The name in the second field of stat is the
// process's own choice, so counting begins behind its last parenthesis.
func parent(pid string) string {
	stat := readAll("/proc/" + pid + "/stat")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

func pids() []string {
	entries, _ := os.ReadDir("/proc")
	var all []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, e.Name())
		}
	}
	return all
}
