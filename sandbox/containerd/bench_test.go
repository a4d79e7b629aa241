package containerd_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// The three benchmarks are meant to be run together and compared:
//
//	go test -run '^$' -bench . -benchtime 30x ./sandbox/containerd
//
// BenchmarkBare is what anybody gets from containerd: default configuration,
// default spec, one snapshot each. BenchmarkCold is a whole sandbox, started,
// spoken to and closed. BenchmarkStart leaves the close out of the time.

// report prints the median, which says more than the mean: a slow disk has
// outliers.
func report(b *testing.B, took []time.Duration) {
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}

func BenchmarkCold(b *testing.B) {
	rt := open(b, "bench")
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		inst := startShell(b, rt, fmt.Sprintf("cold-%d", n))
		if err := inst.Close(endCtx(b)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
}

func BenchmarkStart(b *testing.B) {
	rt := open(b, "bench")
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		inst := startShell(b, rt, fmt.Sprintf("start-%d", n))
		took = append(took, time.Since(began))
		b.StopTimer()
		if err := inst.Close(endCtx(b)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	report(b, took)
}

// startShell starts a sandbox and has one byte come back.
func startShell(b *testing.B, rt *containerd.Runtime, id string) sandbox.Instance {
	inst, err := rt.Start(b.Context(), id, sandbox.Spec{Image: testImage})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := inst.Write([]byte("echo\n")); err != nil {
		b.Fatal(err)
	}
	if _, err := inst.Read(make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	return inst
}

func BenchmarkBare(b *testing.B) {
	ctx := namespaces.WithNamespace(b.Context(), "bare")
	c := bareContainerd(b)
	img := bareImage(ctx, b, c)
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		if err := bareRun(ctx, c, img, fmt.Sprintf("bare-%d", n)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
}

// bareRun creates, starts, awaits and deletes one container.
func bareRun(ctx context.Context, c *client.Client, img client.Image, id string) error {
	container, err := c.NewContainer(ctx, id, client.WithNewSnapshot(id, img),
		client.WithNewSpec(oci.WithImageConfig(img), oci.WithProcessArgs("/bin/busybox", "true")))
	if err != nil {
		return err
	}
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		return err
	}
	exit, err := task.Wait(ctx)
	if err != nil {
		return err
	}
	if err := task.Start(ctx); err != nil {
		return err
	}
	<-exit
	if _, err := task.Delete(ctx); err != nil {
		return err
	}
	return container.Delete(ctx, client.WithSnapshotCleanup)
}

// bareContainerd runs a containerd with its default configuration, but for the
// places.
func bareContainerd(b *testing.B) *client.Client {
	b.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "toolfleet-bare-")
	if err != nil {
		b.Fatal(err)
	}
	socket := filepath.Join(dir, "c.sock")
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\n[grpc]\n  address = %q\n", dir+"/root", dir+"/state", socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binDir, "containerd"), "--config", config)
	cmd.Env = []string{"PATH=" + binDir + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	for {
		c, err := client.New(socket, client.WithTimeout(time.Second))
		if err == nil {
			b.Cleanup(func() { _ = c.Close() })
			return c
		}
		if b.Context().Err() != nil {
			b.Fatal(err)
		}
	}
}

func bareImage(ctx context.Context, b *testing.B, c *client.Client) client.Image {
	b.Helper()
	img, err := image.Recipe{Add: []string{"/bin/busybox:/bin/busybox"}}.Build(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, testImage, img); err != nil {
		b.Fatal(err)
	}
	found, err := c.Import(ctx, &archive)
	if err != nil {
		b.Fatal(err)
	}
	out := client.NewImage(c, found[0])
	if err := out.Unpack(ctx, ""); err != nil {
		b.Fatal(err)
	}
	return out
}
