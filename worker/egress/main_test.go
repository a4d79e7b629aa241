package egress_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// aloneEnv says that the tests are in their own network namespace.
const aloneEnv = "TOOLFLEET_TEST_ALONE"

// The tests run in a network namespace that is made for them and ends with them:
// the hosts that tools reach are addresses of its loopback, and nothing leaves it.
func TestMain(m *testing.M) {
	if os.Getenv(aloneEnv) == "" {
		os.Exit(alone())
	}
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"addr", "add", here + "/32", "dev", "lo"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil { //nolint:noctx // there is none yet
			fmt.Fprintf(os.Stderr, "ip %q, of iproute2: %v: %s\n", args, err, out)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// alone runs this program once more, in the namespace.
func alone() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // it lives as long as this does
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), aloneEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
