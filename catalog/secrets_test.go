package catalog

import (
	"fmt"
	"strings"
	"testing"
)

const allowed = "\nnetwork: {allow: [\"api.example.com:443\"]}"

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
		{"inject", "[{name: k, inject: {host: api.example.com, header: Authorization, format: \"Bearer {}\"}}]" + allowed, ""},
		{"inject at a port", `[{name: k, inject: {host: "API.example.com:8443", header: x-api-key}}]` + "\nnetwork: {allow: [\"api.example.com:8443\"]}", ""},
		{"inject nowhere", "[{name: k, inject: {host: api.example.com, header: A}}]", "secrets[0].inject.host: expected a host that network.allow has"},
		{"inject at another port", `[{name: k, inject: {host: "api.example.com:8443", header: A}}]` + allowed, "secrets[0].inject.host: expected a host that network.allow has"},
		{"inject everywhere", `[{name: k, inject: {host: "*.example.com", header: A}}]` + allowed, "secrets[0].inject.host: expected an exact name"},
		{"inject at an address", `[{name: k, inject: {host: "203.0.113.7", header: A}}]` + allowed, "secrets[0].inject.host: expected an exact name"},
		{"inject and plain HTTP", "[{name: k, inject: {host: api.example.com, header: A}}]" + allowed[:len(allowed)-2] + ", \"api.example.com:80\"]}", "secrets[0].inject.host: network.allow has api.example.com:80"},
		{"inject two", "[{name: k, inject: {host: api.example.com, header: a-b}}, {name: l, inject: {host: api.example.com, header: A-B}}]" + allowed, "secrets[1]: two secrets"},
		{"inject at two ports", `[{name: k, inject: {host: api.example.com, header: A}}, {name: k, inject: {host: "api.example.com:8443", header: B}}]` + allowed[:len(allowed)-2] + ", \"api.example.com:8443\"]}", "secrets[1].inject.host: api.example.com has two ports"},
		{"no header", "[{name: k, inject: {host: api.example.com, header: \"a b\"}}]" + allowed, "secrets[0].inject.header: expected the name"},
		{"a header of ours", "[{name: k, inject: {host: api.example.com, header: host}}]" + allowed, "secrets[0].inject.header: Host decides how"},
		{"a format without", "[{name: k, inject: {host: api.example.com, header: A, format: Bearer}}]" + allowed, "secrets[0].inject.format: expected"},
		{"a format of lines", `[{name: k, inject: {host: api.example.com, header: A, format: "{}\r\nB: c"}}]` + allowed, "secrets[0].inject.format: expected"},
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
