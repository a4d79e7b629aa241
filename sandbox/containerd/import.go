package containerd

import (
	"context"
	"errors"
	"io"

	"github.com/containerd/containerd/v2/client"
)

// defaultNamespace is containerd's namespace unless [Config] says another.
const defaultNamespace = "toolfleet"

// DaemonAddress is where the containerd of a fleet on stateDir listens, be it
// running or not.
func DaemonAddress(stateDir string) string { return pathsOf(stateDir).socket }

// ImportArchive adds the images of an OCI archive to the containerd at address,
// for whoever is not the worker, and returns their names. A worker finds them
// when they are first called for; nothing of its own is touched.
func ImportArchive(ctx context.Context, address string, archive io.Reader) (names []string, err error) {
	c, err := dial(address, defaultNamespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	imported, err := c.Import(ctx, archive, client.WithSkipMissing())
	if err != nil {
		return nil, wrap("import images", err)
	}
	if len(imported) == 0 {
		return nil, errNoImage
	}
	for _, img := range imported {
		names = append(names, img.Name)
	}
	return names, nil
}

var errNoImage = errors.New("containerd: import images: the archive holds no named image")
