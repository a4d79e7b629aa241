package image

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the time of everything in an image.
var epoch = time.Unix(0, 0).UTC()

// Image turns the tree into an image with one layer. The files are read now;
// the image holds them in memory.
func (t *Tree) Image() (v1.Image, error) {
	var layer bytes.Buffer
	if err := t.writeTar(&layer); err != nil {
		return nil, err
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	img, err := mutate.AppendLayers(img, static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		return nil, fmt.Errorf("image: append layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("image: read config: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Created = v1.Time{Time: epoch}
	config.Config = v1.Config{
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		User:       fmt.Sprintf("%d:%d", toolID, toolID),
		WorkingDir: "/workspace",
	}
	if _, ok := t.entries[ToolPath[1:]]; ok {
		config.Config.Entrypoint = []string{ToolPath}
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, fmt.Errorf("image: write config: %w", err)
	}
	return img, nil
}
