package image_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/toolfleet/toolfleet/sandbox/image"
)

// An image with one program of this machine and a link to it, as an archive
// that containerd imports.
func ExampleRecipe() {
	img, err := image.Recipe{
		Add:  []string{"/bin/busybox:/bin/busybox"},
		Link: []string{"/bin/sh=busybox"},
	}.Build(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, "local/shell:1", img); err != nil {
		fmt.Println(err)
		return
	}
	layers, _ := img.Layers()
	fmt.Println(len(layers), "layer")
	// Output: 1 layer
}
