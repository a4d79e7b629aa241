package part

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/internal/health"
)

const (
	// mostFloor and the fortieth of a disk are the default floor: half of the room
	// that images leave free, so that images alone never stop a worker.
	mostFloor = 512 << 20
	floorPart = 40
	// leastInodes must be free where a file system counts them: a sandbox takes a
	// few dozen.
	leastInodes = 1024
)

// checkDisk asks whether there is room where calls need it: below the worker's
// state, and where containerd keeps its images and what sandboxes write over them.
// A start on a full disk fails half-way, at the call's cost; so none is begun.
//
// floor is in bytes; 0 is the default one.
func checkDisk(floor int64, dirs func(context.Context) ([]string, error)) health.Check {
	return health.Check{Name: "disk", Ask: func(ctx context.Context) error {
		list, err := dirs(ctx)
		if err != nil {
			return nil // containerd does not tell: that is another check's to say
		}
		var errs []error
		seen := map[uint64]bool{}
		for _, dir := range list {
			var at unix.Stat_t
			var fs unix.Statfs_t
			err := unix.Stat(dir, &at)
			if err == nil {
				err = unix.Statfs(dir, &fs)
			}
			switch {
			case errors.Is(err, os.ErrNotExist): // in a mount namespace that is not ours
			case err != nil:
				errs = append(errs, fmt.Errorf("%s cannot be looked at: %w; see what is mounted there", dir, err))
			case !seen[at.Dev]:
				seen[at.Dev] = true
				errs = append(errs, room(dir, fs, floor))
			}
		}
		return errors.Join(errs...)
	}}
}

// room says that there is too little of it on a file system.
func room(dir string, fs unix.Statfs_t, floor int64) error {
	free, all := int64(fs.Bavail)*fs.Bsize, int64(fs.Blocks)*fs.Bsize
	if floor == 0 {
		floor = min(all/floorPart, mostFloor)
	}
	switch {
	case free < floor:
		return fmt.Errorf("%s has %d MiB left and no call is started with less than %d; make room there, or lower --disk-floor", dir, free>>20, floor>>20)
	case fs.Files > 0 && fs.Ffree < leastInodes:
		return fmt.Errorf("%s has %d inodes left and no call is started with less than %d; remove files there", dir, fs.Ffree, leastInodes)
	}
	return nil
}
