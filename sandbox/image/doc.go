// Package image makes OCI images of tools without Docker and without a
// registry.
//
// An image is a [Tree] of files: a Go package built to a static binary at
// /tool, or a directory, and single files and links on top. [Tree.Image] turns
// it into an image with one layer, and [WriteArchive] into an archive that
// containerd imports under a name.
//
// The same files give the same digest, on any machine and at any time: paths
// are sorted, times are the epoch, owners are root, modes are 0755 or 0644,
// and the layer is not compressed, because compressors differ between
// versions. Nothing is lost by that: the archive goes to a containerd on the
// same host, which would have to decompress it.
//
// So a tool can read everything in its image. Devices, pipes and sockets are
// refused; the root of a whole system, as debootstrap and its like leave it, has
// them in /dev, which is left out like /proc and /sys.
package image
