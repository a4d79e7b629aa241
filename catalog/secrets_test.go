package catalog

import (
	"fmt"
	"strings"
	"testing"
)

// TestSecrets: a secret has a name and one place, which no other has and which
// decides nothing about how the tool is run.
func TestSecrets(t *testing.T) {
	for _, c := range []struct{ name, secrets, want string }{
		{"env", "[{name: weather-key, env: KEY}]", ""},
		{"file", "[{name: weather.key, file: key.pem}]", ""},
		{"in two places", "[{name: k, env: K}, {name: k, file: k}]", ""},
		{"no name", "[{env: K}]", "secrets[0].name: expected"},
		{"every secret", `[{name: "**", env: K}]`, "secrets[0].name: expected 1 to 64 of"},
		{"a path", "[{name: ../k, env: K}]", "secrets[0].name: expected"},
		{"no place", "[{name: k}]", "secrets[0]: expected one of env, file and inject"},
		{"two places", "[{name: k, env: K, file: k}]", "secrets[0]: expected one of"},
		{"not a variable", "[{name: k, env: K-1}]", "secrets[0].env: expected a name of letters"},
		{"the fleet's", "[{name: k, env: TOOLFLEET_FD}]", "secrets[0].env: names that begin TOOLFLEET_"},
		{"path", "[{name: k, env: PATH}]", "secrets[0].env: PATH decides how"},
		{"preload", "[{name: k, env: LD_PRELOAD}]", "secrets[0].env: LD_PRELOAD decides how"},
		{"set twice", "[{name: k, env: K}]\nenv: {K: v}", "secrets[0].env: K is set in env, too"},
		{"one place for two", "[{name: k, env: K}, {name: l, env: K}]", "secrets[1]: two secrets cannot have the same place"},
		{"one file for two", "[{name: k, file: k}, {name: l, file: k}]", "secrets[1]: two secrets"},
		{"absolute", "[{name: k, file: /etc/passwd}]", "secrets[0].file: expected the name of a file in /run/secrets"},
		{"below", "[{name: k, file: a/b}]", "secrets[0].file: expected"},
		{"above", "[{name: k, file: ..}]", "secrets[0].file: expected"},
		{"unknown", "[{name: k, env: K, value: v}]", "secrets[0].value: "},
		{"too many", "[" + strings.Repeat("{name: k, env: K}, ", 17) + "]", "secrets: are 17"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Parse([]byte(minimal + "secrets: " + c.secrets + "\n"))
			if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %q", got, c.want)
			}
			if err == nil && s.Sandbox("a").Secrets != strings.Contains(c.secrets, "file") {
				t.Errorf("its sandbox: %+v", s.Sandbox("a"))
			}
		})
	}
}
