package catalog

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]Bytes{
		"0": 0, "1": 1, "512Ki": 512 << 10, "64Mi": 64 << 20, "1Gi": 1 << 30, "2Ti": 2 << 40,
		"9223372036854775807": math.MaxInt64, "8388607Ti": 8388607 << 40,
	} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "Mi", "-1", "-1Mi", "+1", "1.5Gi", "1e9", "64M", "64mi", "64 Mi", " 1", "1_000", "0x10", "NaN", "9223372036854775808", "8388608Ti", "99999999999999999999Ki"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %d", in, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"0": 0, "0s": 0, "30s": 30 * time.Second, "1h30m": 90 * time.Minute, "1.5s": 1500 * time.Millisecond} {
		if got, err := ParseDuration(in); err != nil || time.Duration(got) != want {
			t.Errorf("ParseDuration(%q) = %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "30", "-1s", "1d", "NaN", "1e18s", "9999999h", "30 s"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %s", in, got)
		}
	}
}

func TestDurationReadsWell(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 30 * time.Second: "30s", 10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%s reads %q, want %q", d, got, want)
		}
	}
}

func TestQuantitiesSurviveJSON(t *testing.T) {
	type both struct {
		Bytes    Bytes
		Duration Duration
	}
	rapid.Check(t, func(t *rapid.T) {
		want := both{Bytes(rapid.Int64Min(0).Draw(t, "bytes")), Duration(rapid.Int64Min(0).Draw(t, "duration"))}
		raw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got both
		if err := json.Unmarshal(raw, &got); err != nil || got != want {
			t.Fatalf("%s became %+v, %v", raw, got, err)
		}
	})
	var b both
	if err := json.Unmarshal([]byte(`{"Bytes":1048576}`), &b); err != nil || b.Bytes != 1<<20 {
		t.Errorf("a plain number became %d, %v", b.Bytes, err)
	}
	for _, raw := range []string{`{"Bytes":-1}`, `{"Bytes":1.5}`, `{"Bytes":null}`, `{"Duration":30}`, `{"Duration":null}`} {
		if err := json.Unmarshal([]byte(raw), &b); err == nil {
			t.Errorf("%s was accepted", raw)
		}
	}
}
