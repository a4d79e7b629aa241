//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Where the cluster's addresses lie, and that of its name server.
const (
	services = "10.96.0.0/16"
	pods     = "10.88.0.0/24"
	dns      = "10.96.0.10"
	nodeName = "node"
)

// root is the repository as seen from this package.
const root = "../../.."

// node is the running cluster of one node.
type node struct {
	dir        string
	kubernetes string // directory of Kubernetes' programs
	toolchain  string // of containerd's
	kubeconfig string
}

// startNode starts everything and returns when the node is ready and names are
// answered. Nothing stops it: it goes with the namespaces.
func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{dir: os.Getenv(dirVar), kubernetes: os.Getenv("TOOLFLEET_E2E_KUBERNETES")}
	var err error
	if n.toolchain, err = filepath.Abs(filepath.Join(root, ".toolchain/bin")); err != nil {
		t.Fatal(err)
	}
	pki, err := n.identities()
	if err != nil {
		t.Fatal(err)
	}
	n.kubeconfig = pki.kubeconfig("admin")
	for name, text := range n.files(pki) {
		if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.run(t, filepath.Join(n.toolchain, "containerd-cri"), "--config", n.path("containerd.toml"))
	n.controlPlane(t, pki)
	n.importImages(t)
	kubelet := n.command(t, "/proc/self/exe", n.program("kubelet"), "--config="+n.path("kubelet.yaml"), "--kubeconfig="+pki.kubeconfig("kubelet"),
		"--cert-dir="+pki.dir, "--hostname-override="+nodeName, "--node-ip="+nodeIP)
	kubelet.Env = append(slices.DeleteFunc(kubelet.Env, func(v string) bool { return strings.HasPrefix(v, stage+"=") }), stage+"="+stageKubelet)
	kubelet.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	n.start(t, "kubelet", kubelet)
	n.run(t, n.program("kube-proxy"), "--config="+n.path("kube-proxy.yaml"))
	n.kubectl(t, "apply", "-f", "testdata/coredns.yaml")
	eventually(t, time.Minute, "the node is ready", func() error {
		status, err := n.try("get", "node", nodeName, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && status != "True" {
			err = fmt.Errorf("ready is %q", status)
		}
		return err
	})
	n.kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
	return n
}

func (n *node) path(name string) string    { return filepath.Join(n.dir, name) }
func (n *node) program(name string) string { return filepath.Join(n.kubernetes, name) }

// identities makes everybody's certificates.
func (n *node) identities() (*authority, error) {
	a, err := newAuthority(n.path("pki"))
	if err != nil {
		return nil, err
	}
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"}
	if err := a.server("apiserver", names, "127.0.0.1", "10.96.0.1", nodeIP); err != nil {
		return nil, err
	}
	if err := a.server("kubelet-server", []string{nodeName}, "127.0.0.1", nodeIP); err != nil {
		return nil, err
	}
	for _, u := range []struct {
		name, user string
		groups     []string
	}{
		{"admin", "admin", []string{"system:masters"}},
		{"apiserver-kubelet", "apiserver-kubelet", []string{"system:masters"}},
		{"controllers", "system:kube-controller-manager", nil},
		{"scheduler", "system:kube-scheduler", nil},
		{"proxy", "system:kube-proxy", nil},
		{"kubelet", "system:node:" + nodeName, []string{"system:nodes"}},
	} {
		if err := a.user(u.name, u.user, u.groups...); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// controlPlane starts etcd and what stands around it, and returns when objects can
// be made.
func (n *node) controlPlane(t *testing.T, pki *authority) {
	t.Helper()
	own := func(name string) string { return filepath.Join(pki.dir, name) }
	n.run(t, n.program("etcd"), "--data-dir="+n.path("etcd"), "--unsafe-no-fsync", "--log-level=warn")
	n.run(t, n.program("kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379", "--advertise-address="+nodeIP, "--secure-port=6443", "--allow-privileged",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--service-cluster-ip-range="+services,
		"--tls-cert-file="+own("apiserver.crt"), "--tls-private-key-file="+own("apiserver.key"), "--client-ca-file="+own("ca.crt"),
		"--kubelet-client-certificate="+own("apiserver-kubelet.crt"), "--kubelet-client-key="+own("apiserver-kubelet.key"),
		"--kubelet-certificate-authority="+own("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file="+own("accounts.key"), "--service-account-key-file="+own("accounts.pub"))
	eventually(t, time.Minute, "the API server is ready", func() error {
		_, err := n.try("get", "--raw", "/readyz")
		return err
	})
	as := func(name string) []string {
		k := pki.kubeconfig(name)
		return []string{"--kubeconfig=" + k, "--authentication-kubeconfig=" + k, "--authorization-kubeconfig=" + k, "--leader-elect=false", "--bind-address=127.0.0.1"}
	}
	n.run(t, n.program("kube-controller-manager"), append(as("controllers"),
		"--service-account-private-key-file="+own("accounts.key"), "--root-ca-file="+own("ca.crt"),
		"--use-service-account-credentials", "--flex-volume-plugin-dir="+n.path("plugins"),
		"--kube-api-qps=500", "--kube-api-burst=500")...) // it starts much at once
	n.run(t, n.program("kube-scheduler"), as("scheduler")...)
	eventually(t, time.Minute, "there are ServiceAccounts", func() error {
		_, err := n.try("get", "serviceaccount", "default")
		return err
	})
}

// files are the parts' configurations by name. What differs from a usual node is
// owed to a machine that may not lower the score by which the kernel chooses whom
// to kill, has cgroup v1, and reaches no registry.
func (n *node) files(pki *authority) map[string]string {
	return map[string]string{
		"resolv.conf": "nameserver 127.0.0.1\n",
		"cni/10-node.conflist": `{"cniVersion": "1.0.0", "name": "node", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + pods + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`,
		"containerd.toml": fmt.Sprintf(`version = 3
imports = []
disabled_plugins = ["io.containerd.nri.v1.nri"]
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "%[4]s"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["%[2]s"]
  conf_dir = "%[3]s"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    BinaryName = "%[1]s/runc"
`, n.toolchain, n.program("cni"), n.path("cni"), pauseImage),
		"kubelet.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[1]s/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: %[1]s/kubelet-server.crt
tlsPrivateKeyFile: %[1]s/kubelet-server.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [%[2]s]
clusterDomain: cluster.local
resolvConf: %[3]s
volumePluginDir: %[4]s
syncFrequency: 5s
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%}
`, pki.dir, dns, n.path("resolv.conf"), n.path("plugins")),
		"kube-proxy.yaml": fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, nodeName, pki.kubeconfig("proxy")),
	}
}

// command is a program of the node, which finds the node's runc.
func (n *node) command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "PATH="+n.toolchain+":"+os.Getenv("PATH"))
	return cmd
}

// run starts a program of the node.
func (n *node) run(t *testing.T, program string, args ...string) {
	t.Helper()
	n.start(t, filepath.Base(program), n.command(t, program, args...))
}

// start starts a program whose end before the test's is the test's end.
func (n *node) start(t *testing.T, name string, cmd *exec.Cmd) {
	t.Helper()
	if err := os.MkdirAll(n.path("logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(n.logOf(name))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := t.Context().Done() // which kills it; the first process takes in what it leaves
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := cmd.Wait()
		select {
		case <-over:
		default:
			t.Errorf("%s ended: %v\n%s", name, err, n.tail(name))
		}
	}()
	t.Cleanup(func() {
		<-ended
		_ = log.Close()
	})
}

func (n *node) logOf(name string) string { return n.path("logs/" + name + ".log") }

// tail is the end of a program's log.
func (n *node) tail(name string) string {
	text, err := os.ReadFile(n.logOf(name))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
