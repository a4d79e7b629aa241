package sandbox

import (
	"fmt"
	"strings"
)

// ImageFault says why an image cannot be had. A person mends each of them in
// another place, so they are told apart.
type ImageFault string

// The faults. Every one of them is a failure before the start.
const (
	// ImageAbsent: it is not in the worker's store, and no registry may be asked
	// for it: its name has none, or its pull policy is never.
	ImageAbsent ImageFault = "absent"
	// ImageInvalid: its name is no image reference.
	ImageInvalid ImageFault = "invalid"
	// ImageNotFound: its registry does not have it.
	ImageNotFound ImageFault = "not_found"
	// ImageForbidden: its registry refuses it to us.
	ImageForbidden ImageFault = "forbidden"
	// ImageUnreachable: its registry does not answer, or is too busy to.
	ImageUnreachable ImageFault = "unreachable"
	// ImagePending: its pull has not ended yet and goes on.
	ImagePending ImageFault = "pending"
	// ImagePlatform: it is made for other machines than the worker's.
	ImagePlatform ImageFault = "platform"
	// ImageCorrupt: what came is not what its digest says, or is no image.
	ImageCorrupt ImageFault = "corrupt"
	// ImageNoRoom: the worker's disk has no room for it.
	ImageNoRoom ImageFault = "no_room"
)

// predicates complete a sentence that begins with the image.
var predicates = map[ImageFault]string{
	ImageAbsent:      "is not in the worker's store, and may not be pulled",
	ImageInvalid:     "is not named as an image can be",
	ImageNotFound:    "is not found in its registry",
	ImageForbidden:   "is not allowed to be pulled: its registry wants other credentials",
	ImageUnreachable: "cannot be pulled: its registry is not reachable, or too busy",
	ImagePending:     "is still being pulled",
	ImagePlatform:    "is made for another operating system or CPU than the worker's",
	ImageNoRoom:      "has no room on the worker's disk",
	ImageCorrupt:     "is damaged or incomplete, or differs from its digest",
}

// Predicate says the fault in words for people and models, to stand behind the
// image's name: "is not found in its registry".
func (f ImageFault) Predicate() string {
	if p, ok := predicates[f]; ok {
		return p
	}
	return "is missing, forbidden or cannot be reached"
}

// ImageError is an [ErrImage] that says why.
type ImageError struct {
	// Image is the reference as the spec writes it.
	Image string
	Fault ImageFault
	// Detail is for the operator's log: short, in one line, and without
	// anything secret. It may quote what a registry said.
	Detail string
}

func (e *ImageError) Error() string {
	s := fmt.Sprintf("%s: %s %s", ErrImage, e.Image, e.Fault.Predicate())
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap makes it an [ErrImage].
func (e *ImageError) Unwrap() error { return ErrImage }

// NamesRegistry reports whether an image reference says where to pull from.
// Others are never completed with a public registry, as is the custom: a name
// like local/tool:1 belongs to somebody there, and what they put under it would
// run here in place of the image that nobody imported.
func NamesRegistry(ref string) bool {
	host, _, found := strings.Cut(ref, "/")
	return found && (host == "localhost" || strings.ContainsAny(host, ".:"))
}
