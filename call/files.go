package call

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Files tells of what a tool left in /workspace/out.
type Files struct {
	// Count and Bytes are of the files that are parts of the result.
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
	// LeftOut names what is not, at most 20, and LeftOutMore is how many others.
	LeftOut     []LeftOut `json:"leftOut,omitempty"`
	LeftOutMore int       `json:"leftOutMore,omitempty"`
}

// LeftOut names a file that is not part of the result, and says why.
type LeftOut struct {
	// Name is the path below /workspace/out; "." is the directory itself.
	Name string `json:"name"`
	// Reason is a phrase that follows the name, such as "is a symbolic link".
	Reason string `json:"reason"`
}

// MetaLeftOut marks the text part, in Extra, that tells a model of files that
// were left out.
const MetaLeftOut = "toolfleet.leftOut"

// Limits on the files that a call may bring.
const (
	// MaxFiles is how many.
	MaxFiles = 16
	// MaxFileBytes is of all together, in bytes.
	MaxFileBytes = 64 << 20
	// MaxFileName is the longest name, in bytes, as file systems have it.
	MaxFileName = 255
	// MaxMimeType is the longest MIME type, in bytes.
	MaxMimeType = 255
)

// File is a file that a call brings. Its bytes are in a blob of the tenant's.
type File struct {
	// Name is the file's in /workspace/in: no path, no control character, no dot
	// at the beginning.
	Name     string `json:"name"`
	MimeType string `json:"mimeType"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// Digest is "sha256:" and hex.
	Digest string `json:"digest"`
	// Blob is the reference of the blob.
	Blob string `json:"blob"`
	// Attached says that nobody asked for the file with this call: it came up in
	// the conversation, and comes along. It is no part of what the call is, since
	// a client may send the conversation again in another shape.
	Attached bool `json:"attached,omitempty"`
}

// Same reports whether c asks for what o asks for: the same of the same tool,
// with the same files. Where the bytes lie does not matter.
func (c Call) Same(o Call) bool {
	if c.Tool != o.Tool || c.ArgumentsDigest != o.ArgumentsDigest {
		return false
	}
	return slices.EqualFunc(asked(c.Files), asked(o.Files), func(a, b File) bool {
		return a.Name == b.Name && a.MimeType == b.MimeType && a.Digest == b.Digest
	})
}

// asked are the files that came with the call.
func asked(files []File) []File {
	return slices.DeleteFunc(slices.Clone(files), func(f File) bool { return f.Attached })
}

// validFiles says what is wrong with the names and sizes of files.
func validFiles(files []File) error {
	var errs []error
	if len(files) > MaxFiles {
		errs = append(errs, fmt.Errorf("a call may bring %d files, and this one has %d", MaxFiles, len(files)))
	}
	var total int64
	for i, f := range files {
		switch {
		case f.Name == "" || len(f.Name) > MaxFileName || !utf8.ValidString(f.Name):
			errs = append(errs, fmt.Errorf("files[%d]: a name has 1 to %d bytes of UTF-8", i, MaxFileName))
		case strings.HasPrefix(f.Name, ".") || strings.ContainsAny(f.Name, `/\`) || strings.ContainsFunc(f.Name, unicode.IsControl):
			errs = append(errs, fmt.Errorf("files[%d]: a name has no slash, no control character and no dot at its beginning", i))
		case slices.ContainsFunc(files[:i], func(o File) bool { return o.Name == f.Name }):
			errs = append(errs, fmt.Errorf("files[%d]: an earlier file has the name %q too", i, clip(f.Name, 40)))
		}
		if !ValidMimeType(f.MimeType) {
			errs = append(errs, fmt.Errorf("files[%d]: %q is no MIME type such as image/png", i, clip(f.MimeType, 40)))
		}
		total += min(max(f.Size, 0), MaxFileBytes+1)
	}
	if total > MaxFileBytes {
		errs = append(errs, fmt.Errorf("the files have more than %d bytes together", MaxFileBytes))
	}
	return errors.Join(errs...)
}

// ValidMimeType reports whether s is type/subtype, with parameters or without, and
// no longer than [MaxMimeType].
func ValidMimeType(s string) bool {
	plain, _, _ := strings.Cut(s, ";")
	kind, sub, both := strings.Cut(strings.TrimSpace(plain), "/")
	const letters = toolLetters + ".+!#$&^"
	return both && len(s) <= MaxMimeType && madeOf(kind, letters, 1, 127) && madeOf(sub, letters, 1, 127) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
