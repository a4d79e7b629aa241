package catalog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/schema"
)

// Files says which files go into a call of the tool and come out of it.
type Files struct {
	// In lists MIME types such as "image/png" and "image/*". A call may bring
	// files of these types and no others, and in a conversation the attachments
	// of these types are brought along. Nil takes files of any type, and none of
	// a conversation; empty takes no files.
	In *[]string `json:"in,omitempty"`
	// Out bounds what the tool leaves in /workspace/out, all files together; nil
	// means [MaxFilesOut], and 0 that nothing comes back.
	Out *Bytes `json:"out,omitempty"`
}

const (
	// MaxFilesOut is the most that the files of one call may have together: as
	// much as one blob.
	MaxFilesOut = Bytes(blob.MaxSize)
	// maxFilesOut is how many there may be: a result lists them all.
	maxFilesOut = 100
	// maxTypesIn bounds the list of MIME types.
	maxTypesIn = 32
)

// FilesOut is what the fleet takes of the files that a call of the tool leaves.
func (s *Spec) FilesOut() sandbox.FilesOut {
	out := MaxFilesOut
	if s.Files != nil && s.Files.Out != nil {
		out = *s.Files.Out
	}
	if out == 0 {
		return sandbox.FilesOut{}
	}
	return sandbox.FilesOut{Files: maxFilesOut, Bytes: int64(out)}
}

// TakesFile reports whether a call of the tool may bring a file of a MIME type.
func (s *Spec) TakesFile(mimeType string) bool {
	return s.Files == nil || s.Files.In == nil || matches(*s.Files.In, mimeType)
}

// WantsFile reports whether a file of a MIME type that came up in a conversation
// goes along with a call of the tool.
func (s *Spec) WantsFile(mimeType string) bool {
	return s.Files != nil && s.Files.In != nil && matches(*s.Files.In, mimeType)
}

// judgeFiles lists what is wrong with the files of a call.
func (s *Spec) judgeFiles(files []call.File) []schema.Problem {
	var problems []schema.Problem
	var total int64
	for _, f := range files {
		total += f.Size
		if !s.TakesFile(f.MimeType) {
			problems = append(problems, schema.Problem{Path: "files", Message: fmt.Sprintf("%s is %s, which the tool does not take", f.Name, f.MimeType)})
		}
	}
	if total > int64(s.Limits.Disk) {
		problems = append(problems, schema.Problem{Path: "files", Message: fmt.Sprintf("have %d bytes together, more than the tool's disk of %s", total, s.Limits.Disk)})
	}
	return problems
}

func matches(patterns []string, mimeType string) bool {
	mimeType, _, _ = strings.Cut(strings.ToLower(mimeType), ";")
	mimeType = strings.TrimSpace(mimeType)
	return slices.ContainsFunc(patterns, func(p string) bool {
		kind, all := strings.CutSuffix(p, "*")
		return p == "*/*" || p == mimeType || all && strings.HasPrefix(mimeType, kind)
	})
}

var mimeForm = regexp.MustCompile(`^(\*/\*|[a-z0-9][a-z0-9.+-]{0,62}/(\*|[a-z0-9][a-z0-9.+-]{0,126}))$`)

func (v *validator) files(s *Spec) {
	if s.Files == nil {
		return
	}
	if s.Type == TypeServer {
		v.fault("files", "belongs to tools that the fleet runs")
	}
	if s.Files.Out != nil {
		between(v, "files.out", *s.Files.Out, 0, MaxFilesOut)
	}
	if s.Files.In == nil {
		return
	}
	in := *s.Files.In
	if len(in) > maxTypesIn {
		v.fault("files.in", "has %d MIME types, and at most %d are allowed", len(in), maxTypesIn)
	}
	for i, p := range in {
		field := fmt.Sprintf("files.in[%d]", i)
		if !mimeForm.MatchString(p) {
			v.fault(field, "expected a MIME type in lower case, such as application/pdf or image/*, got %q", cut(p))
		} else if slices.Contains(in[:i], p) {
			v.fault(field, "names %q twice", p)
		}
	}
}
