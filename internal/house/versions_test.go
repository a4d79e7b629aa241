package house

import (
	"regexp"
	"strings"
	"testing"
)

// The versions that documents tell are those that the module is built with.
func TestDocumentedVersions(t *testing.T) {
	module := read(t, "go.mod")
	for _, v := range []struct {
		of       string // as go.mod has it, the version in group 1
		document string
		says     string // before the version
	}{
		{`(?m)^go (\S+)$`, "README.md", "Go "},
		{`nats-server/v2 (\S+)`, "docs/operations.md", "nats-server/v2@"},
	} {
		m := regexp.MustCompile(v.of).FindStringSubmatch(module)
		if m == nil {
			t.Errorf("go.mod has nothing like %s", v.of)
			continue
		}
		if !strings.Contains(read(t, v.document), v.says+m[1]) {
			t.Errorf("%s does not say %q", v.document, v.says+m[1])
		}
	}
}
