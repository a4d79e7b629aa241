//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const chart = root + "/charts/toolfleet"

var values = []string{"--values=testdata/values.yaml"}

// TestFleet is one life of a release, from its installation to its end.
func TestFleet(t *testing.T) {
	n := startNode(t)
	if !t.Run("Install", n.install) {
		return
	}
	t.Run("Accepted", n.accepted)
	t.Run("Rights", n.rights)
	t.Run("Nesting", n.nesting)
	t.Run("Catalogue", n.catalogue)
	t.Run("Changes", n.changes)
	t.Run("Host", n.host)
	t.Run("Uninstall", n.uninstall)
	t.Run("Elsewhere", n.elsewhere)
	t.Run("Cluster", n.cluster)
}

// install wants a result within a minute of the installation.
func (n *node) install(t *testing.T) {
	n.kubectl(t, "create", "namespace", namespace)
	n.kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged")
	began := time.Now()
	n.helm(t, append([]string{"install", release, chart}, values...)...)
	c := n.caller(t)
	for {
		if err := c.ask(t.Context(), "first", 1); err == nil {
			break
		} else if time.Since(began) > time.Minute {
			n.explain(t)
			t.Fatalf("no result in a minute: %v", err)
		}
		<-time.After(200 * time.Millisecond)
	}
	t.Logf("first result %.1f s after the installation began", time.Since(began).Seconds())
	n.settled(t)
	n.helm(t, "test", release)
}

// settled waits until everything has rolled out.
func (n *node) settled(t *testing.T) {
	t.Helper()
	for part := range strings.FieldsSeq(n.fleet(t, "get", "deployment,statefulset,daemonset", "-o", "name")) {
		n.fleet(t, "rollout", "status", part, "--timeout=180s")
	}
}

// accepted wants the API server to take every object of every values file that the
// chart is checked with, those of the operators' kinds too, and no unknown field.
func (n *node) accepted(t *testing.T) {
	n.kubectl(t, "apply", "--server-side", "--filename="+filepath.Join(os.Getenv("TOOLFLEET_E2E_SCHEMAS"), "crds"))
	n.kubectl(t, "wait", "--for=condition=Established", "customresourcedefinition", "--all", "--timeout=60s")
	files, err := filepath.Glob(filepath.Join(chart, "ci/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no values files: %v", err)
	}
	for _, file := range files {
		// Without the test's pod, which wants an account that is really there.
		text, err := exec.CommandContext(t.Context(), n.program("helm"), "template", "other", chart, "--skip-tests", "--namespace="+namespace, "--values="+file).Output()
		if err != nil {
			t.Fatal(err)
		}
		objects := n.path(filepath.Base(file))
		if err := os.WriteFile(objects, text, 0o600); err != nil {
			t.Fatal(err)
		}
		n.fleet(t, "apply", "--dry-run=server", "--validate=strict", "--filename="+objects)
	}
}

// rights wants pods without tokens, and an account that may nothing: who steals one
// from a dispatcher can ask the API server for what everybody can.
func (n *node) rights(t *testing.T) {
	tokens := n.fleet(t, "get", "pods", "-o", "jsonpath={.items[*].spec.volumes[*].projected.sources[*].serviceAccountToken}")
	if err := want(tokens, ""); err != nil {
		t.Errorf("pods with tokens of their account: %v", err)
	}
	account := "--as=system:serviceaccount:" + namespace + ":" + fullName
	for _, question := range [][]string{{"get", "secrets"}, {"list", "pods"}, {"create", "pods"}, {"create", "pods/exec"}, {"patch", "deployments"}, {"*", "*"}} {
		out, err := n.try(append([]string{"auth", "can-i", "-n", namespace, account}, question...)...)
		if err == nil || !strings.HasPrefix(out, "no") {
			t.Errorf("the account may %v: %s", question, out)
		}
	}
	policies := strings.Fields(n.fleet(t, "get", "networkpolicy", "-o", "name"))
	if len(policies) != 5 {
		t.Errorf("the NetworkPolicies are %v", policies)
	}
}

// nesting wants sandboxes below the cgroup of the worker's container, so that its
// limits are theirs.
func (n *node) nesting(t *testing.T) {
	ended := make(chan error, 1)
	c := n.caller(t)
	go func() {
		_, err := c.insist("nesting", 50)
		ended <- err
	}()
	eventually(t, 20*time.Second, "the sandbox's group lies below a pod's", func() error {
		for _, group := range n.groups(t) {
			if strings.Contains(group, "/kubepods/") && strings.Contains(group, "/toolfleet/") {
				return nil
			}
		}
		return fmt.Errorf("the groups are %q", n.groups(t))
	})
	for _, group := range n.groups(t) {
		container, _, _ := strings.Cut(group, "/toolfleet/")
		limit, err := os.ReadFile(filepath.Join(container, "memory.limit_in_bytes"))
		if err != nil {
			t.Error(err)
		} else if err := want(string(limit), "2147483648"); err != nil { // as in testdata/values.yaml
			t.Errorf("the group %s is below no limit of a pod: %v", group, err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// catalogue adds a tool to the release, and wants it to be served without any pod
// starting anew.
func (n *node) catalogue(t *testing.T) {
	before := n.fleet(t, "get", "pods", "-o", "name")
	n.helm(t, append([]string{"upgrade", release, chart, "--values=testdata/more-tools.yaml"}, values...)...)
	c := n.caller(t)
	eventually(t, 2*time.Minute, "a new tool is served", func() error {
		return c.call(t.Context(), fmt.Sprint("new-", time.Now().UnixNano()), "word-count", map[string]any{"text": "one two"})
	})
	if err := want(n.fleet(t, "get", "pods", "-o", "name"), strings.TrimSpace(before)); err != nil {
		t.Errorf("the pods are others: %v", err)
	}
}

// groups are the memory groups that sandboxes have, or had.
func (n *node) groups(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(cgroupAt, "memory"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "/toolfleet/") {
			found = append(found, path)
		}
		return nil // groups go while one looks
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// changes does to a fleet under load what is done to a fleet in its life.
func (n *node) changes(t *testing.T) {
	stop := make(chan struct{})
	done := make(chan struct{})
	c := n.caller(t)
	go func() {
		defer close(done)
		c.load(t, stop)
	}()
	worker := "deployment/" + fullName + "-worker-default"
	for _, change := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"Upgrade", func(t *testing.T) {
			n.helm(t, append([]string{"upgrade", release, chart, "--set=logFormat=text"}, values...)...)
			n.settled(t)
		}},
		{"Rollback", func(t *testing.T) {
			n.helm(t, "rollback", release)
			n.settled(t)
		}},
		{"Delete", func(t *testing.T) {
			n.fleet(t, "delete", "--wait=false", n.workers(t)[0])
			n.settled(t)
		}},
		{"Kill", func(t *testing.T) {
			n.kill(t, "worker")
		}},
		{"Scale", func(t *testing.T) {
			for _, replicas := range []string{"1", "3", "1", "2"} {
				n.fleet(t, "scale", worker, "--replicas="+replicas)
				n.settled(t)
			}
		}},
		{"Drain", n.drain},
	} {
		t.Run(change.name, func(t *testing.T) {
			began := time.Now()
			change.do(t)
			t.Logf("took %.0f s", time.Since(began).Seconds())
		})
	}
	close(stop)
	<-done
}

// workers are the pods of workers, as kubectl names them, that run and are not on
// their way out.
func (n *node) workers(t *testing.T) []string {
	t.Helper()
	out := n.fleet(t, "get", "pods", "--selector=toolfleet/role=worker", "--field-selector=status.phase=Running",
		"-o", `go-template={{range .items}}{{if not .metadata.deletionTimestamp}}pod/{{.metadata.name}} {{end}}{{end}}`)
	pods := strings.Fields(out)
	if len(pods) == 0 {
		t.Fatal("there is no worker")
	}
	return pods
}

// drain empties the node of workers. There is no other node, so what takes the
// first one's place waits, and the budget keeps the second where it is.
func (n *node) drain(t *testing.T) {
	eventually(t, time.Minute, "two workers are there", func() error { return want(fmt.Sprint(len(n.workers(t))), "2") })
	out, err := n.try("drain", nodeName, "--pod-selector=toolfleet/role=worker", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=40s")
	if err == nil || !strings.Contains(out, "disruption budget") {
		t.Errorf("the budget let both workers go: %v\n%s", err, out)
	}
	if left := n.workers(t); len(left) != 1 {
		t.Errorf("after the drain the workers are %v", left)
	}
	n.kubectl(t, "uncordon", nodeName)
	n.settled(t)
}

// host changes to workers on the node's containerd, kills one in the middle of its
// calls and deletes the pod of another, and wants each swept and the calls answered.
func (n *node) host(t *testing.T) {
	n.helm(t, append([]string{"upgrade", release, chart, "--set=worker.mode=host,worker.kind=DaemonSet"}, values...)...)
	n.settled(t)
	eventually(t, 2*time.Minute, "the last of the old workers is gone", func() error { return want(fmt.Sprint(len(n.workers(t))), "1") })
	c := n.caller(t)
	if _, err := c.insist("host", 1); err != nil {
		n.explain(t)
		t.Fatal(err)
	}
	n.swept(t, c, "killed", func() { n.kill(t, "worker") })
	n.swept(t, c, "deleted", func() { n.fleet(t, "delete", n.workers(t)[0], "--wait=true") })
	n.settled(t)
}

// swept ends a worker in the middle of calls, and wants all of them answered and
// nothing left of its sandboxes in the node's containerd.
func (n *node) swept(t *testing.T, c *caller, name string, end func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := c.insist(name, 40)
		ended <- err
	}()
	eventually(t, 20*time.Second, "the node's containerd has a sandbox", func() error {
		if len(n.sandboxes(t)) == 0 {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	before := n.sandboxes(t)
	end()
	eventually(t, time.Minute, "nothing of the "+name+" worker is left", func() error {
		for _, id := range n.sandboxes(t) {
			if slices.Contains(before, id) {
				return fmt.Errorf("the sandbox %s is still there", id)
			}
		}
		return nil
	})
	if err := <-ended; err != nil {
		n.explain(t)
		t.Error(err)
	}
}

// kill kills one of the fleet's programs, and wants the kubelet to start it again in
// its pod.
func (n *node) kill(t *testing.T, program string) {
	t.Helper()
	eventually(t, 2*time.Minute, "no pod is on its way out", func() error { // those are not started again
		return want(n.fleet(t, "get", "pods", "-o", "jsonpath={.items[*].metadata.deletionTimestamp}"), "")
	})
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range commands {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(line, []byte("/usr/local/bin/"+program+"\x00")) {
			continue // another, or gone meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "the "+program+" is started again", func() error {
			counts := n.fleet(t, "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[?(@.name=='"+program+"')].restartCount}")
			if strings.Trim(counts, "0 ") == "" {
				return fmt.Errorf("restarts: %s", counts)
			}
			return nil
		})
		n.settled(t)
		return
	}
	t.Fatalf("no %s runs", program)
}

// sandboxes are the containers in the fleet's namespace of the node's containerd.
func (n *node) sandboxes(t *testing.T) []string {
	t.Helper()
	// It warns on its standard error of what it thinks of cgroup v1.
	out, err := exec.CommandContext(t.Context(), filepath.Join(n.toolchain, "ctr"), "--namespace=toolfleet", "containers", "list", "--quiet").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// uninstall wants nothing to be left: no object, no sandbox, no cgroup, no mount.
func (n *node) uninstall(t *testing.T) {
	n.helm(t, "uninstall", release, "--wait", "--timeout=3m")
	eventually(t, 2*time.Minute, "the last pod is gone", func() error {
		return want(n.fleet(t, "get", "pods", "-o", "name"), "")
	})
	left := n.fleet(t, "get", "all,configmap,secret,persistentvolumeclaim,networkpolicy,poddisruptionbudget,serviceaccount", "-o", "name")
	if err := want(left, "configmap/kube-root-ca.crt\nserviceaccount/default"); err != nil {
		t.Error(err)
	}
	if ids := n.sandboxes(t); len(ids) > 0 {
		t.Errorf("sandboxes are left: %v", ids)
	}
	if groups := n.groups(t); len(groups) > 0 {
		t.Errorf("cgroups are left: %v", groups)
	}
	mounts, err := command("cat", "/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(mounts) {
		if strings.Contains(line, "/run/toolfleet/") {
			t.Errorf("a mount is left: %s", line)
		}
	}
}
