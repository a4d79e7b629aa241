package aguidoor

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
)

// attachments are the files that come along with a call: those media of the
// user's message which it answers that its tool's files.in names. What is
// elsewhere (at a URL that is not the fleet's, or with a provider) is not
// fetched, and what does not fit is left out; the call is made all the same.
func attachments(spec *catalog.Spec, messages []agui.Message, toolCallID string, caller dispatch.Caller) []dispatch.Upload {
	var uploads []dispatch.Upload
	room := min(call.MaxFileBytes, int64(spec.Limits.Disk)/2) // the tool needs some, too
	for i, p := range answered(messages, toolCallID) {
		if p.Source == nil || !spec.WantsFile(p.Source.MimeType) || !call.ValidMimeType(p.Source.MimeType) || len(uploads) == call.MaxFiles {
			continue
		}
		u := dispatch.Upload{Name: nameOf(p, i), MimeType: p.Source.MimeType, Attached: true, Room: room}
		switch p.Source.Type {
		case agui.SourceData:
			data, err := base64.StdEncoding.DecodeString(p.Source.Value)
			if err != nil {
				continue
			}
			u.Data = data
		case agui.SourceURL:
			id, ok := caller.Blob(p.Source.Value)
			if !ok {
				continue
			}
			u.Blob = &id
		default:
			continue
		}
		for n, name := i+1, u.Name; slices.ContainsFunc(uploads, func(o dispatch.Upload) bool { return o.Name == u.Name }); n++ {
			u.Name = fmt.Sprintf("%d-%s", n, name) // which may be another's own name
		}
		uploads = append(uploads, u)
	}
	return uploads
}

// answered are the parts of the last user's message before the one that carries
// the call, or of the last of all when none of them does yet.
func answered(messages []agui.Message, toolCallID string) []agui.Part {
	var parts []agui.Part
	for _, m := range messages {
		switch m := m.(type) {
		case agui.UserMessage:
			parts = m.Content.List()
		case agui.AssistantMessage:
			if slices.ContainsFunc(m.ToolCalls, func(tc agui.ToolCall) bool { return tc.ID == toolCallID }) {
				return parts
			}
		}
	}
	return parts
}

// maxName leaves room for a number before a name that is there twice.
const maxName = 200

// nameOf is the name that a part's metadata gives its file, made fit to be one,
// or a name that tells its place and its type.
func nameOf(p agui.Part, i int) string {
	var meta struct {
		Filename string `json:"filename"`
	}
	_ = json.Unmarshal(p.Metadata, &meta) // whatever else it holds is not ours
	name := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '_'
		}
		return r
	}, path.Base(strings.ReplaceAll(meta.Filename, `\`, "/")))
	name = strings.TrimLeft(name, "./")
	if name != "" && len(name) <= maxName {
		return name
	}
	_, sub, _ := strings.Cut(strings.ToLower(p.Source.MimeType), "/")
	if strings.Trim(sub, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		sub = "bin"
	}
	return fmt.Sprintf("attachment-%d.%s", i+1, sub)
}
