package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/toolfleet/toolfleet/sandbox"
)

// dial connects to a containerd. The connection mends itself when containerd
// is started again; meanwhile calls fail at once, rather than wait for it as
// those of the client's own dialer do: a worker must see that it has no
// runtime.
func dial(address, namespace string) (*client.Client, error) {
	c, err := client.New(address, client.WithDefaultNamespace(namespace), client.WithDefaultRuntime(shimRuntime),
		client.WithDialOpts([]grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(target, "unix://"))
			}),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: 3 * time.Second,
			}),
		}))
	if err != nil {
		return nil, fmt.Errorf("containerd: connect to %s: %w: %w", address, sandbox.ErrUnavailable, err)
	}
	return c, nil
}

// serving asks containerd whether it serves.
func serving(ctx context.Context, c *client.Client) error {
	res, err := c.HealthService().Check(ctx, &health.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if res.Status != health.HealthCheckResponse_SERVING {
		return fmt.Errorf("its health is %s", res.Status)
	}
	return nil
}

// ping asks a containerd that may not be there whether it serves.
func ping(ctx context.Context, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := dial(address, "default")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return serving(ctx, c)
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
