package image_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/sandbox/image"
)

func TestProgram(t *testing.T) {
	build := func(p image.Program) (string, map[string]bool) {
		t.Helper()
		img, err := p.Build()
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		want := "65532:65532"
		if p.Root {
			want = "0:0"
		}
		if c := config.Config; c.User != want || c.WorkingDir != "/" || !cmp.Equal(c.Entrypoint, p.Entrypoint) {
			t.Errorf("config %+v", c)
		}
		names := map[string]bool{}
		for name := range files(t, img) {
			names[name] = true
		}
		return digest(t, img), names
	}
	program := func(at time.Time) image.Program {
		return image.Program{
			Entrypoint: []string{"/usr/bin/run"},
			Add:        []string{sources(t, 0o700, at) + "/bin/run:/usr/bin/run"}, Link: []string{"/usr/bin/go=run"},
		}
	}
	first, names := build(program(time.Unix(1, 0)))
	want := map[string]bool{}
	for _, name := range []string{"etc/", "etc/passwd", "etc/group", "tmp/", "usr/", "usr/bin/", "usr/bin/run", "usr/bin/go"} {
		want[name] = true
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if second, _ := build(program(time.Unix(2, 0))); first != second {
		t.Errorf("the same files make %s and %s", first, second)
	}
	root := program(time.Unix(1, 0))
	root.Root = true
	if other, _ := build(root); other == first {
		t.Error("the user is no part of the digest")
	}
	if _, err := (image.Program{}).Build(); err == nil {
		t.Error("an image that starts nothing was made")
	}
}
