package catalog

import (
	"fmt"
	"hash/fnv"
	"os"
	"syscall"
)

// fingerprint stands for what is below a directory: it changes when a tool file
// is written, put in the place of another, added or removed, and when a link to
// one (a ConfigMap is full of those) leads elsewhere. Files are looked at, not
// read, since this is done several times a second; watches of the file system
// are not used because they end with the directory that they were set on, and a
// ConfigMap's is another one after each change.
func fingerprint(dir string) string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err.Error()
	}
	defer root.Close()
	h := fnv.New128a()
	err = eachToolFile(root, func(path string, err error) {
		if err == nil {
			var info os.FileInfo
			if info, err = root.Stat(path); err == nil {
				stat, _ := info.Sys().(*syscall.Stat_t) // as every Unix has it
				fmt.Fprintf(h, "%q %d %d %v %v\n", path, stat.Ino, stat.Size, stat.Mtim, stat.Ctim)
			}
		}
		if err != nil {
			fmt.Fprintf(h, "%q %v\n", path, err)
		}
	})
	return fmt.Sprintf("%x %v", h.Sum(nil), err)
}
