package secret

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/catalog"
)

const granted = `apiVersion: toolfleet/v1
kind: Secrets
secrets:
  - {name: key, file: data/key, tools: [weather], tenants: ["*"]}
  - {name: crm, env: TOOLFLEET_SECRET_ACME, tools: [crm, sync], tenants: [acme]}
  - {name: crm, env: TOOLFLEET_SECRET_GLOBEX, tools: [crm], tenants: [globex]}
`

// write writes a file below dir.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// open opens a store over a secrets file in a new directory.
func open(t *testing.T, text string) (s *Store, dir string, log *bytes.Buffer) {
	t.Helper()
	dir, log = t.TempDir(), new(bytes.Buffer)
	write(t, dir, "secrets.yaml", text)
	environ := map[string]string{"TOOLFLEET_SECRET_ACME": "acme's own", "TOOLFLEET_SECRET_GLOBEX": "globex's own"}
	s, err := Open(filepath.Join(dir, "secrets.yaml"), environ, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s, dir, log
}

// resolve expects one value.
func resolve(t *testing.T, s *Store, tool, tenant, name string) string {
	t.Helper()
	values, err := s.Resolve(tool, tenant, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	return values[0].Reveal()
}

// TestPain92OnlyWhatIsGranted: a spec that names a secret is not enough, no
// name stands for several, and the same name may be another value for another
// tenant.
func TestPain92OnlyWhatIsGranted(t *testing.T) {
	s, dir, _ := open(t, granted)
	write(t, dir, "data/key", "the weather's key\n")
	for _, c := range []struct{ tool, tenant, name, value string }{
		{"weather", "acme", "key", "the weather's key"},
		{"crm", "acme", "crm", "acme's own"},
		{"crm", "globex", "crm", "globex's own"},
	} {
		if got := resolve(t, s, c.tool, c.tenant, c.name); got != c.value {
			t.Errorf("%v: %q", c, got)
		}
	}
	for _, c := range []struct{ tool, tenant, name string }{
		{"other", "acme", "key"},
		{"weather", "acme", "crm"},
		{"sync", "globex", "crm"},
		{"crm", "initech", "crm"},
		{"weather", "acme", "*"},
		{"weather", "acme", "**"},
		{"weather", "acme", ""},
		{"*", "acme", "key"},
		{"weather", "acme", "k"},
		{"weather", "acme", "TOOLFLEET_SECRET_ACME"},
		{"weather", "acme", "data/key"},
	} {
		_, err := s.Resolve(c.tool, c.tenant, []string{c.name})
		var e *Error
		if !errors.Is(err, ErrNotGranted) || !errors.As(err, &e) || e.Name != c.name {
			t.Errorf("%v: %v", c, err)
		}
	}
	var none *Store
	if _, err := none.Resolve("weather", "acme", []string{"key"}); !errors.Is(err, ErrNotGranted) {
		t.Errorf("without a file: %v", err)
	}
}

// TestReadAtUse: a value is what stands there now, also when Kubernetes swaps
// the link that all files of a volume are behind.
func TestReadAtUse(t *testing.T) {
	s, dir, _ := open(t, granted)
	volume := filepath.Join(dir, "data")
	write(t, volume, "..1/key", "the first value")
	write(t, volume, "..2/key", "the second value\r\n")
	for _, link := range [][2]string{{"..1", "..data"}, {"..data/key", "key"}} {
		if err := os.Symlink(link[0], filepath.Join(volume, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	if got := resolve(t, s, "weather", "acme", "key"); got != "the first value" {
		t.Errorf("first %q", got)
	}
	if err := os.Symlink("..2", filepath.Join(volume, "..new")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(volume, "..new"), filepath.Join(volume, "..data")); err != nil {
		t.Fatal(err)
	}
	if got := resolve(t, s, "weather", "acme", "key"); got != "the second value" {
		t.Errorf("then %q", got)
	}
}

// TestFileIsReadAgain: what is taken out of the file is not given any more, and
// a file with faults changes nothing and is told of once.
func TestFileIsReadAgain(t *testing.T) {
	s, dir, log := open(t, granted)
	write(t, dir, "secrets.yaml", strings.ReplaceAll(granted, "[acme]", "[initech]"))
	if _, err := s.Resolve("crm", "acme", []string{"crm"}); !errors.Is(err, ErrNotGranted) {
		t.Errorf("got %v", err)
	}
	write(t, dir, "secrets.yaml", "kind: Nonsense")
	for range 3 {
		if got := resolve(t, s, "crm", "initech", "crm"); got != "acme's own" {
			t.Errorf("got %q", got)
		}
	}
	if n := strings.Count(log.String(), "has faults"); n != 1 {
		t.Errorf("%d lines: %s", n, log)
	}
}

// TestBadValues: what is no value is told with the secret's name, and never
// with what was read.
func TestBadValues(t *testing.T) {
	s, dir, _ := open(t, granted)
	key := filepath.Join(dir, "data/key")
	for _, c := range []struct{ name, text, says string }{
		{"missing", "", "no such file"},
		{"empty", "\n", "is empty"},
		{"short", "canary\n", "shorter than 8 bytes"},
		{"long", strings.Repeat("canary", MaxValue/6+1), "longer than 32768 bytes"},
		{"NUL", "canary\x00canary", "is not text"},
		{"bytes", "canary\xffcanary", "is not text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.text != "" {
				write(t, dir, "data/key", c.text)
			}
			_, err := s.Resolve("weather", "acme", []string{"key"})
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `secret "key"`) || strings.Contains(err.Error(), "canary") {
				t.Errorf("got %v", err)
			}
		})
	}
	write(t, dir, "data/key", strings.Repeat("x", MaxValue)+"\n")
	if got := resolve(t, s, "weather", "acme", "key"); len(got) != MaxValue {
		t.Errorf("%d bytes", len(got))
	}
	if err := errors.Join(os.Remove(key), os.Mkdir(key, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve("weather", "acme", []string{"key"}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
}

// TestFaults: every fault of a file is told, with its line.
func TestFaults(t *testing.T) {
	const head = "apiVersion: toolfleet/v1\nkind: Secrets\nsecrets:\n"
	for _, c := range []struct{ name, text, want string }{
		{"another kind", "apiVersion: toolfleet/v1\nkind: Tool\n", "2: kind: expected Secrets"},
		{"unknown field", head + "  - {name: k, file: f, tool: [t], tenants: [a]}\n", "4: secrets[0].tool: "},
		{"no tools", head + "  - {name: k, file: f, tenants: [a]}\n", "4: secrets[0].tools: is missing"},
		{"no tenants", head + "  - {name: k, file: f, tools: [t]}\n", "4: secrets[0].tenants: is missing"},
		{"every tool", head + "  - {name: k, file: f, tools: [\"*\"], tenants: [a]}\n", "4: secrets[0].tools[0]: expected the name"},
		{"a pattern", head + "  - {name: \"**\", file: f, tools: [t], tenants: [a]}\n", "4: secrets[0].name: "},
		{"a pattern of tenants", head + "  - {name: k, file: f, tools: [t], tenants: [\"a*\"]}\n", "4: secrets[0].tenants[0]: "},
		{"no source", head + "  - {name: k, tools: [t], tenants: [a]}\n", "4: secrets[0]: expected one of env and file"},
		{"two sources", head + "  - {name: k, file: f, env: TOOLFLEET_SECRET_K, tools: [t], tenants: [a]}\n", "4: secrets[0]: expected one"},
		{"the worker's own", head + "  - {name: k, env: TOOLFLEET_NATS, tools: [t], tenants: [a]}\n", "4: secrets[0].env: expected a name that begins TOOLFLEET_SECRET_"},
		{"given twice", head + "  - {name: k, file: f, tools: [t, u], tenants: [a]}\n  - {name: k, file: g, tools: [u], tenants: [\"*\"]}\n", "5: secrets[1]: gives k to a tool and a tenant that secrets[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "s.yaml", c.text)
			_, err := Open(filepath.Join(dir, "s.yaml"), nil, slog.New(slog.DiscardHandler))
			if faults, ok := errors.AsType[catalog.Problems](err); !ok || !strings.Contains(faults.Error(), "s.yaml:"+c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none.yaml"), nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no file, and no error")
	}
}

func TestTakeEnviron(t *testing.T) {
	t.Setenv("TOOLFLEET_SECRET_ONE", "the value=1")
	t.Setenv("TOOLFLEET_SECRETS", "a file")
	got := TakeEnviron()
	if got["TOOLFLEET_SECRET_ONE"] != "the value=1" || len(got) != 1 {
		t.Errorf("took %d, %q", len(got), got["TOOLFLEET_SECRET_ONE"])
	}
	if _, there := os.LookupEnv("TOOLFLEET_SECRET_ONE"); there {
		t.Error("a child would inherit it")
	}
	if os.Getenv("TOOLFLEET_SECRETS") != "a file" {
		t.Error("more was taken than secrets")
	}
}

// TestExample: the file to begin with is one.
func TestExample(t *testing.T) {
	if _, err := Open("../../deploy/secrets.yaml", nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// What calls would be declined for is known before there is one.
func TestUngranted(t *testing.T) {
	s, _, _ := open(t, granted)
	for _, c := range []struct {
		tool    string
		tenants []string
		names   []string
		missing string
	}{
		{"weather", nil, []string{"key"}, ""},
		{"weather", []string{"acme", "initech"}, []string{"key"}, ""},
		{"weather", nil, []string{"key", "crm"}, "crm"},
		{"crm", nil, []string{"crm"}, ""},
		{"crm", []string{"acme", "globex"}, []string{"crm"}, ""},
		{"crm", []string{"acme", "initech"}, []string{"crm"}, "crm"},
		{"sync", []string{"globex"}, []string{"crm"}, "crm"},
		{"other", nil, []string{"key", "crm"}, "key crm"},
		{"other", nil, nil, ""},
	} {
		if got := strings.Join(s.Ungranted(c.tool, c.tenants, c.names), " "); got != c.missing {
			t.Errorf("%s for %v lacks %q of %v, want %q", c.tool, c.tenants, got, c.names, c.missing)
		}
	}
	var nobody *Store
	if got := nobody.Ungranted("weather", nil, []string{"key"}); len(got) != 1 {
		t.Errorf("without a file %v is missing", got)
	}
}
