package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	ctrdns "github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"
)

// Bare is the yardstick that sandboxes are measured with: what anybody gets
// from containerd who creates, starts, awaits and deletes a container. It has
// a containerd of its own with its default configuration, on disk, runc, the
// default spec without a user namespace, and a snapshot for each container.
type Bare struct {
	client *client.Client
	image  client.Image
	cmd    *exec.Cmd
	dir    string
}

// StartBare starts the containerd, with its root in a new directory below
// dir, and imports the image that archive holds. Stop must be called.
func StartBare(ctx context.Context, binDir, dir string, archive io.Reader) (b *Bare, err error) {
	b = &Bare{}
	if b.dir, err = os.MkdirTemp(dir, "bare-"); err != nil {
		return nil, fmt.Errorf("containerd: bare: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stop())
		}
	}()
	socket, config := filepath.Join(b.dir, "c.sock"), filepath.Join(b.dir, "config.toml")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\n[grpc]\n  address = %q\n", b.dir+"/root", b.dir+"/state", socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("containerd: bare: %w", err)
	}
	b.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(binDir, "containerd"), "--config", config)
	b.cmd.Env = []string{"PATH=" + binDir + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	if err := b.cmd.Start(); err != nil {
		b.cmd = nil
		return nil, fmt.Errorf("containerd: bare: %w", err)
	}
	if b.client, err = client.New(socket, client.WithTimeout(startTimeout)); err != nil {
		return nil, fmt.Errorf("containerd: bare: %w", err)
	}
	ctx = ctrdns.WithNamespace(ctx, "bare")
	found, err := b.client.Import(ctx, archive)
	if err != nil {
		return nil, fmt.Errorf("containerd: bare: import: %w", err)
	}
	b.image = client.NewImage(b.client, found[0])
	if err := b.image.Unpack(ctx, ""); err != nil {
		return nil, fmt.Errorf("containerd: bare: unpack: %w", err)
	}
	return b, nil
}

// Run creates, starts, awaits and deletes one container that runs argv. It is
// safe for concurrent use with different ids.
func (b *Bare) Run(ctx context.Context, id string, argv ...string) error {
	ctx = ctrdns.WithNamespace(ctx, "bare")
	container, err := b.client.NewContainer(ctx, id, client.WithNewSnapshot(id, b.image),
		client.WithNewSpec(oci.WithImageConfig(b.image), oci.WithProcessArgs(argv...)))
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

// Stop ends the containerd and removes its directory.
func (b *Bare) Stop() error {
	var errs []error
	if b.client != nil {
		errs = append(errs, b.client.Close())
	}
	if b.cmd != nil {
		kill := time.AfterFunc(stopTimeout, func() { _ = b.cmd.Process.Kill() })
		_ = b.cmd.Process.Signal(unix.SIGTERM)
		_ = b.cmd.Wait() // its exit code says nothing: it was told to go
		kill.Stop()
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}
