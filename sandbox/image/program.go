package image

import (
	"errors"
	"fmt"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Program is the image of a program of the fleet itself: a root file system with
// nothing in it but /tmp, the two names in /etc/passwd, and what is added. There
// is no shell and no package manager, so whoever gets into it finds no tools.
type Program struct {
	// Entrypoint is the command line that the image starts. Required.
	Entrypoint []string
	// Root says that the program must be root; otherwise it is user 65532.
	Root bool
	// Add and Link are as in [Recipe].
	Add, Link []string
}

// Build makes the image. The same files give the same digest.
func (p Program) Build() (v1.Image, error) {
	if len(p.Entrypoint) == 0 {
		return nil, errors.New("image: a program's image needs an entrypoint")
	}
	t := bare()
	if err := t.apply(p.Add, ":", t.Add); err != nil {
		return nil, err
	}
	if err := t.apply(p.Link, "=", t.Link); err != nil {
		return nil, err
	}
	img, err := t.Image()
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("image: read config: %w", err)
	}
	config = config.DeepCopy()
	config.Config.Entrypoint, config.Config.WorkingDir = p.Entrypoint, "/"
	if p.Root {
		// In numbers, as Kubernetes wants them to see who is not root.
		config.Config.User = "0:0"
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, fmt.Errorf("image: write config: %w", err)
	}
	return img, nil
}

// bare returns a tree for a program that belongs to nobody's calls.
func bare() *Tree {
	t := &Tree{entries: map[string]entry{}}
	t.put("etc/passwd", entry{mode: 0o644, content: "root:x:0:0:root:/:/sbin/nologin\ntoolfleet:x:65532:65532:toolfleet:/:/sbin/nologin\n"})
	t.put("etc/group", entry{mode: 0o644, content: "root:x:0:\ntoolfleet:x:65532:\n"})
	t.put("tmp", entry{mode: fs.ModeDir | fs.ModeSticky | 0o777})
	return t
}
