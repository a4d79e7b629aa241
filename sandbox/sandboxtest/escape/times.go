package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// Time and names are the machine's, or the sandbox's that the host gave it.
var timeAttempts = []attempt{
	{name: "settimeofday", opens: "the tool sets the machine's clock", try: func(bait) outcome {
		var now unix.Timeval
		if err := unix.Gettimeofday(&now); err != nil {
			return denied(err)
		}
		return judge(unix.Settimeofday(&now), "set the clock")
	}},
	{name: "clock-settime", opens: "the tool sets the machine's clock", try: func(bait) outcome {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
			return denied(err)
		}
		return judge(unix.ClockSettime(unix.CLOCK_REALTIME, &now), "set the clock")
	}},
	{name: "adjtimex", opens: "the tool makes the machine's clock run faster", try: func(bait) outcome {
		var t unix.Timex
		if _, err := unix.Adjtimex(&t); err != nil {
			return denied(err)
		}
		t.Modes = unix.ADJ_TICK // as it was
		_, err := unix.Adjtimex(&t)
		return judge(err, "adjusted the clock")
	}},
	{name: "sethostname", opens: "the tool renames its sandbox, or the host", try: func(bait) outcome {
		before, _ := os.Hostname()
		err := unix.Sethostname([]byte("escaped"))
		if after, _ := os.Hostname(); after != before {
			return open("the name is %s", after)
		}
		return judge(err, "")
	}},
	{name: "setdomainname", opens: "the tool renames its domain, or the host's", try: func(bait) outcome {
		return judge(unix.Setdomainname([]byte("escaped")), "set the domain's name")
	}},
}
