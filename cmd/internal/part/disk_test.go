package part

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDiskHasRoomOrSaysWhatToDo(t *testing.T) {
	dirs := func(list ...string) func(context.Context) ([]string, error) {
		return func(context.Context) ([]string, error) { return list, nil }
	}
	dir := t.TempDir()
	for name, test := range map[string]struct {
		floor int64
		dirs  func(context.Context) ([]string, error)
		want  int // problems
	}{
		"room":               {1, dirs(dir), 0},
		"none":               {1 << 60, dirs(dir), 1},
		"one disk twice":     {1 << 60, dirs(dir, "/"+dir), 1},
		"of another's":       {1 << 60, dirs("/nowhere/at/all"), 0},
		"containerd is away": {1 << 60, func(context.Context) ([]string, error) { return nil, errors.New("away") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			said := ""
			if err := checkDisk(test.floor, test.dirs).Ask(t.Context()); err != nil {
				said = err.Error()
			}
			if got := strings.Count(said, "make room there, or lower --disk-floor"); got != test.want {
				t.Errorf("it says %q", said)
			}
		})
	}
}

// The default floor is below what images leave free, on disks of every size, and
// a file system without inodes is as full as one without bytes.
func TestFloorOfADisk(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		fs   unix.Statfs_t // in blocks of 1 MiB
		want string
	}{
		"large, enough":     {unix.Statfs_t{Blocks: 1 << 20, Bavail: 513}, ""},
		"large, too little": {unix.Statfs_t{Blocks: 1 << 20, Bavail: 511}, "511 MiB left"},
		"small, enough":     {unix.Statfs_t{Blocks: 400, Bavail: 11}, ""},
		"small, too little": {unix.Statfs_t{Blocks: 400, Bavail: 9}, "less than 10"},
		"no inodes":         {unix.Statfs_t{Blocks: 400, Bavail: 300, Files: 5000, Ffree: 12}, "12 inodes left"},
		"inodes uncounted":  {unix.Statfs_t{Blocks: 400, Bavail: 300}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.fs.Bsize = mib
			said := ""
			if err := room("/x", test.fs, 0); err != nil {
				said = err.Error()
			}
			if (said == "") != (test.want == "") || !strings.Contains(said, test.want) {
				t.Errorf("it says %q, want %q", said, test.want)
			}
		})
	}
}
