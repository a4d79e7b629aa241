// Command images makes the images of the fleet's own parts, without Docker: an
// OCI archive each, which containerd imports and which skopeo or crane copy into
// a registry.
//
// There are three. The dispatcher holds one program and is nobody special. The
// worker holds its containerd, shim and runc too, since it starts them itself,
// and is root. The third is the command line, for a NATS server of a trial and
// for the chart's test. All programs are static, so that nothing lies beside
// them but the certificates that registries and NATS servers are checked by.
//
// The same programs and certificates make the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolfleet/toolfleet/sandbox/image"
)

// at is where programs lie in the images.
const at = "/usr/local/bin/"

// certificates is where Go looks for the system's.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

type config struct {
	bin, toolchain, output, registry, tag string
}

// part is one image to make.
type part struct {
	name     string // of the image, and of the program that it starts
	root     bool
	programs []string
}

func main() {
	var cfg config
	flag.StringVar(&cfg.bin, "bin", "bin", "directory of dispatcher, worker, agent and toolfleet")
	flag.StringVar(&cfg.toolchain, "toolchain", ".toolchain/bin", "directory of containerd, its shim and runc")
	flag.StringVar(&cfg.output, "output", "bin/fleet", "directory for the archives")
	flag.StringVar(&cfg.registry, "registry", "toolfleet.local", "what the images' names begin with")
	flag.StringVar(&cfg.tag, "tag", "dev", "their tag")
	flag.Parse()
	if err := run(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(cfg config) error {
	if err := os.MkdirAll(cfg.output, 0o755); err != nil {
		return err
	}
	own := func(name string) string { return filepath.Join(cfg.bin, name) }
	pinned := func(name string) string { return filepath.Join(cfg.toolchain, name) }
	for _, p := range []part{
		{name: "dispatcher", programs: []string{own("dispatcher")}},
		{name: "worker", root: true, programs: []string{
			own("worker"), own("agent"), pinned("containerd"), pinned("containerd-shim-runc-v2"), pinned("runc"),
		}},
		{name: "toolfleet", programs: []string{own("toolfleet")}},
	} {
		if err := p.write(cfg); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// write makes the image and its archive, and prints the name with the digest.
func (p part) write(cfg config) error {
	recipe := image.Program{Entrypoint: []string{at + p.name}, Root: p.root, Add: []string{certificates + ":" + certificates}}
	for _, program := range p.programs {
		recipe.Add = append(recipe.Add, program+":"+at+filepath.Base(program))
	}
	img, err := recipe.Build()
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	// Beside its place and then there at once, so that nobody reads half of it.
	f, err := os.CreateTemp(cfg.output, "."+p.name+"-*")
	if err != nil {
		return err
	}
	ref := cfg.registry + "/" + p.name + ":" + cfg.tag
	err = image.WriteArchive(f, ref, img)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(cfg.output, p.name+".tar"))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	_, err = fmt.Fprintf(os.Stdout, "%s@%s\n", ref, digest)
	return err
}
