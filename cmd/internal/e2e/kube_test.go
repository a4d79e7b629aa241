//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// namespace is where the chart is installed, and release its name there.
const (
	namespace = "fleet"
	release   = "fleet"
	fullName  = release + "-toolfleet"
)

// try runs kubectl.
func (n *node) try(args ...string) (string, error) {
	return command(n.program("kubectl"), append([]string{"--kubeconfig=" + n.kubeconfig}, args...)...)
}

// kubectl runs kubectl and wants it to succeed.
func (n *node) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.try(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fleet is kubectl in the fleet's namespace.
func (n *node) fleet(t *testing.T, args ...string) string {
	t.Helper()
	return n.kubectl(t, append([]string{"--namespace=" + namespace}, args...)...)
}

// helm runs helm on the release, and says what the pods are about when it fails.
func (n *node) helm(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), n.program("helm"), append([]string{"--kubeconfig=" + n.kubeconfig, "--namespace=" + namespace}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+n.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		n.explain(t)
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// explain logs what is needed to find out why the fleet does not stand.
func (n *node) explain(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"-n", namespace, "get", "events", "--sort-by=.lastTimestamp"},
		{"-n", namespace, "logs", "--selector=app.kubernetes.io/name=toolfleet", "--all-containers", "--prefix", "--tail=25", "--ignore-errors"},
	} {
		out, err := n.try(args...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	t.Logf("kubelet:\n%s", n.tail("kubelet"))
}

// eventually asks over and over until ask says nil, and fails after that time.
func eventually(t *testing.T, within time.Duration, what string, ask func() error) {
	t.Helper()
	began := time.Now()
	for {
		err := ask()
		if err == nil {
			t.Logf("%s: after %.1f s", what, time.Since(began).Seconds())
			return
		}
		if time.Since(began) > within {
			t.Fatalf("%s: not in %v: %v", what, within, err)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// want compares what kubectl prints.
func want(got, wanted string) error {
	if strings.TrimSpace(got) != wanted {
		return fmt.Errorf("got %q and not %q", strings.TrimSpace(got), wanted)
	}
	return nil
}
