package tenant_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const head = "apiVersion: toolfleet/v1\nkind: Tenants\n"

// write puts a file in the place of another, as an editor does.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func TestNamedTenantsTakeTheRestFromDefault(t *testing.T) {
	s, err := tenant.Parse([]byte(head + `
default: {maxInFlight: 8, callsPerMinute: 600, maxWaiting: 100, blobBytes: 64Mi}
tenants:
  acme: {weight: 4, callsPerMinute: 6000}
  free: {callsPerMinute: 0, maxWaiting: 0, blobBytes: 0, maxInFlight: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]tenant.Limits{
		"acme":    {Weight: 4, MaxInFlight: 8, CallsPerMinute: 6000, MaxWaiting: 100, BlobBytes: 64 << 20},
		"free":    {Weight: 1},
		"default": {Weight: 1, MaxInFlight: 8, CallsPerMinute: 600, MaxWaiting: 100, BlobBytes: 64 << 20},
	} {
		got := s.Of(name)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if w, n := s.Share(name); w != want.Weight || n != want.MaxInFlight {
			t.Errorf("%s shares %d, %d", name, w, n)
		}
		if got.Quotas() == (name == "free") {
			t.Errorf("%s: quotas %t", name, got.Quotas())
		}
	}
}

func TestWithoutAFileNobodyHasALimit(t *testing.T) {
	var s *tenant.Set
	if diff := cmp.Diff(tenant.Limits{Weight: 1}, s.Of("acme")); diff != "" {
		t.Error(diff)
	}
}

func TestEveryFaultIsTold(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tenants.yaml")
	write(t, name, `apiVersion: v2
kind: Tenants
default: {weight: 0, calls: 3}
tenants:
  Acme: {}
  acme:
    wieght: 2
    maxInFlight: -1
    blobBytes: 64M
    maxWaiting: many
  twice: {}
  twice: {}
`)
	_, err := tenant.Open(name)
	problems, ok := errors.AsType[catalog.Problems](err)
	if !ok {
		t.Fatalf("%v", err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, strings.TrimPrefix(p.String(), name))
	}
	want := []string{
		`:1: apiVersion: expected toolfleet/v1`,
		`:3: default.calls: unknown field`,
		`:3: default.weight: must be from 1 to 1000`,
		`:5: tenants.Acme: a tenant's name must match [a-z0-9-]{1,63}`,
		`:7: tenants.acme.wieght: unknown field; did you mean weight?`,
		`:8: tenants.acme.maxInFlight: must be from 0 (no limit) to 10000000`,
		`:9: tenants.acme.blobBytes: "64M" is not a size such as 512Ki, 64Mi, 1Gi or a number of bytes`,
		`:10: tenants.acme.maxWaiting: expected a whole number, got "many"`,
		`:12: tenants.twice: is given twice; the first is on line 11`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A change is taken without a restart; a file with faults, or none, changes
// nothing and is told once.
func TestReload(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tenants.yaml")
	if _, err := tenant.Open(name); !errors.As(err, new(catalog.Problems)) {
		t.Fatalf("no file: %v", err)
	}
	write(t, name, head+"default: {callsPerMinute: 1}\n")
	s, err := tenant.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what string, wantChanged, wantErr bool, rate int) {
		t.Helper()
		changed, err := s.Reload()
		if changed != wantChanged || (err != nil) != wantErr || s.Of("acme").CallsPerMinute != rate {
			t.Errorf("%s: changed %t, %v; %d calls a minute", what, changed, err, s.Of("acme").CallsPerMinute)
		}
	}
	expect("the same", false, false, 1)
	write(t, name, head+"default: {callsPerMinute: 2}\n")
	expect("another", true, false, 2)
	write(t, name, head+"default: {callsPerMinute: -2}\n")
	expect("a bad one", true, true, 2)
	expect("the same bad one", false, false, 2)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	expect("none", true, true, 2)
	expect("still none", false, false, 2)
	write(t, name, head+"default: {callsPerMinute: 3}\n")
	expect("mended", true, false, 3)
}

// The file that operators are given to begin with is one.
func TestTheExampleIsRead(t *testing.T) {
	s, err := tenant.Open("../deploy/tenants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if l := s.Of("nightly"); l.CallsPerMinute != 0 || l.BlobBytes == 0 {
		t.Errorf("%+v", l)
	}
}
