package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStartThatFails has every way to start a fleet wrongly end with one
// sentence that names the cure, and leave nothing behind.
func TestStartThatFails(t *testing.T) {
	root := repo(t)
	junk, empty, config := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "c.yaml")
	for name, text := range map[string]string{filepath.Join(junk, "x.tar"): "no archive", config: "bogus: 1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name  string
		flags []string
		code  int
		says  string
	}{
		{"no images", []string{"--images", empty}, exitFailed, "no OCI archive"},
		{"junk images", []string{"--images", junk}, exitFailed, "x.tar"},
		{"no programs", []string{"--programs", empty}, exitFailed, "make setup"},
		{"no containerd", []string{"--containerd", "/run/not-there.sock"}, exitFailed, "not-there.sock"},
		{"no tools", []string{"--tools", empty}, exitFailed, "--tools"},
		{"NATS for everybody", []string{"--nats-listen", "0.0.0.0:0"}, exitFailed, "loopback"},
		{"doors for everybody", []string{"--listen", "0.0.0.0:0"}, exitFailed, "token"},
		{"bad class", []string{"--class", "a b"}, exitFailed, "class"},
		{"bogus setting", []string{"--config", config}, exitUsage, "bogus"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Cleanup(func() { sweep(t, dir) })
			args := append([]string{
				"up", "--state", filepath.Join(dir, "state"), "--programs", root, "--tools", filepath.Join(root, "examples", "tools"),
				"--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--log-level", "error",
			}, tt.flags...)
			out := &strings.Builder{}
			code := run(t.Context(), args, &terminal{in: strings.NewReader(""), out: out, err: out})
			if code != tt.code || !strings.Contains(out.String(), tt.says) || strings.Contains(out.String(), "goroutine") {
				t.Errorf("exit code %d, want %d and %q:\n%.2000s", code, tt.code, tt.says, out)
			}
			if left := processes("containerd", dir); len(left) > 0 {
				t.Errorf("a containerd is left: %v", left)
			}
		})
	}
}
