// Package blob keeps the bytes that are too large for an event: long arguments
// and large parts of results. A blob is written once, under its call, and read
// by range.
package blob

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolfleet/toolfleet/call"
)

// Sentinels.
var (
	// ErrNotFound says that there is no such blob, or no more.
	ErrNotFound = errors.New("blob: not found")
	// ErrOther says that the blob is there already, with other bytes.
	ErrOther = errors.New("blob: there already with other bytes")
)

// Limits on what travels inline, so that nothing meets the server's 1 MiB.
const (
	// InlinePart is the largest part inside an event.
	InlinePart = 256 << 10
	// InlineEvent is the largest event.
	InlineEvent = 512 << 10
)

// ID names a blob: the call it belongs to and a number. 0 is the call's
// arguments, parts begin at 1.
type ID struct {
	Tenant string
	Key    call.Key
	N      int
}

// scheme begins the internal reference that stands in the log; doors rewrite
// it to a URL that a client can fetch.
const scheme = "toolfleet-blob:"

// String is the internal reference, "toolfleet-blob:<tenant>/<key>/<n>".
func (id ID) String() string {
	return fmt.Sprintf("%s%s/%s/%d", scheme, id.Tenant, id.Key, id.N)
}

// Parse reads a reference that [ID.String] wrote.
func Parse(ref string) (ID, error) {
	rest, ok := strings.CutPrefix(ref, scheme)
	f := strings.Split(rest, "/")
	if !ok || len(f) != 3 || !call.ValidTenant(f[0]) {
		return ID{}, fmt.Errorf("blob: %q is not a reference", ref)
	}
	key, err := call.ParseKey(f[1])
	if err != nil {
		return ID{}, fmt.Errorf("blob: %q is not a reference", ref)
	}
	n, err := strconv.Atoi(f[2])
	if err != nil || n < 0 {
		return ID{}, fmt.Errorf("blob: %q is not a reference", ref)
	}
	return ID{f[0], key, n}, nil
}

// Info describes a blob.
type Info struct {
	Size     int64
	MimeType string
	// Name is of the file that the bytes were, or empty. It may be any text.
	Name string
	// Digest is "sha256:" and hex; doors use it as the ETag.
	Digest string
}
