package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"

	"github.com/toolfleet/toolfleet/sandbox"
)

// dial connects to a containerd. The connection mends itself when containerd
// is started again.
func dial(address, namespace string) (*client.Client, error) {
	c, err := client.New(address, client.WithDefaultNamespace(namespace), client.WithTimeout(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("containerd: connect to %s: %w: %w", address, sandbox.ErrUnavailable, err)
	}
	return c, nil
}

// ping asks a containerd that may not be there whether it serves.
func ping(ctx context.Context, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := client.New(address, client.WithTimeout(timeout))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	serving, err := c.IsServing(ctx)
	if err == nil && !serving {
		err = errors.New("not serving")
	}
	return err
}

// wrap names the step that failed and marks a lost connection as
// [sandbox.ErrUnavailable].
func wrap(step string, err error) error {
	err = native(err)
	switch {
	case err == nil:
		return nil
	case errdefs.IsUnavailable(err):
		return fmt.Errorf("containerd: %s: %w: %w", step, sandbox.ErrUnavailable, err)
	default:
		return fmt.Errorf("containerd: %s: %w", step, err)
	}
}

// wrapEnd is wrap for steps of an end, where it is as well when the thing is
// gone already.
func wrapEnd(step string, err error) error {
	if errdefs.IsNotFound(native(err)) {
		return nil
	}
	return wrap(step, err)
}

// native turns an error of the task service, which speaks gRPC, into one that
// package errdefs knows. Those of all other services are so already.
func native(err error) error {
	var rpc interface{ GRPCStatus() *status.Status }
	if errors.As(err, &rpc) {
		return errgrpc.ToNative(err)
	}
	return err
}
