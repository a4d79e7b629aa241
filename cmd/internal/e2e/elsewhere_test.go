//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// elsewhere installs a release on a NATS server that is none of it, with TLS and a
// user for each role, as deploy/nats has them: with the right keys it answers, and
// with the worker's in the dispatcher's place nothing gets ready.
func (n *node) elsewhere(t *testing.T) {
	keys := n.path("nats")
	if _, err := command(filepath.Join(root, "deploy/nats/keys.sh"), keys, nodeIP); err != nil {
		t.Fatal(err)
	}
	server := n.command(t, filepath.Join(root, "bin/toolfleet"), "nats", filepath.Join(root, "deploy/nats/single.conf"))
	server.Env = append(server.Env, environment(t, keys+"/nats.env", keys+"/node-1.env")...)
	server.Env = append(server.Env, "NATS_HOST="+nodeIP)
	n.start(t, "nats", server)
	for name, file := range map[string]string{
		"nats-dispatcher": "nkey=" + keys + "/dispatcher.nk", "nats-worker": "nkey=" + keys + "/worker.nk", "nats-ca": "ca.crt=" + keys + "/ca.pem",
	} {
		n.fleet(t, "create", "secret", "generic", name, "--from-file="+file)
	}
	set := "--set=nats.inChart.enabled=false,nats.url=tls://" + nodeIP + ":4222,nats.caSecret=nats-ca,nats.dispatcherSecret=nats-dispatcher,nats.workerSecret=nats-worker"
	n.helm(t, append([]string{"install", release, chart, set}, values...)...)
	n.settled(t)
	if _, err := n.caller(t).insist("elsewhere", 1); err != nil {
		n.explain(t)
		t.Fatal(err)
	}
	// The stolen key of a worker does not make a dispatcher: the new pod never gets
	// ready, and the old ones go on.
	n.helm(t, append([]string{"upgrade", release, chart, set + ",nats.dispatcherSecret=nats-worker"}, values...)...)
	if out, err := n.try("--namespace="+namespace, "rollout", "status", "deployment/"+fullName+"-dispatcher", "--timeout=15s"); err == nil {
		t.Errorf("a dispatcher with a worker's key is ready: %s", out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.caller(t).ask(ctx, "still", 1); err != nil {
		t.Errorf("the dispatchers of before do not answer: %v", err)
	}
	n.helm(t, "uninstall", release, "--wait", "--timeout=3m")
}

// cluster installs a release with three NATS servers of its own, and takes one of
// them and its disk away while a call runs.
func (n *node) cluster(t *testing.T) {
	n.helm(t, append([]string{"install", release, chart, "--set=nats.replicas=3,dispatcher.replicas=1,worker.replicas=1"}, values...)...)
	n.settled(t)
	c := n.caller(t)
	if _, err := c.insist("before", 1); err != nil {
		n.explain(t)
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.insist("meanwhile", 80)
		ended <- err
	}()
	n.fleet(t, "delete", "--wait=false", "pod/"+fullName+"-nats-0")
	if err := <-ended; err != nil {
		n.explain(t)
		t.Error(err)
	}
	n.settled(t)
	if _, err := c.insist("after", 1); err != nil {
		t.Error(err)
	}
	n.helm(t, "uninstall", release, "--wait", "--timeout=3m")
}

// environment reads files of NAME=VALUE lines.
func environment(t *testing.T, files ...string) []string {
	t.Helper()
	var list []string
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if line := strings.TrimSpace(lines.Text()); line != "" {
				list = append(list, line)
			}
		}
	}
	return list
}
