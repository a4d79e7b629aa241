package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration written as Go writes it, such as "30s" or
// "1h30m", in YAML and in JSON. It is never negative.
type Duration time.Duration

// Bytes is a number of bytes, written with a binary suffix, such as "64Mi", or
// as a plain number. It is never negative.
type Bytes int64

// ParseDuration reads a duration. A bare number is refused, except 0, because
// it does not say its unit.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration such as 30s or 10m", cut(s))
	}
	return Duration(d), nil
}

// String writes the duration as Go does, without empty units: "10m", not
// "10m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalJSON writes a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a string.
func (d *Duration) UnmarshalJSON(data []byte) (err error) {
	*d, err = ParseDuration(unquote(data))
	return err
}

// suffixes of Bytes, largest first.
var suffixes = []struct {
	name string
	size int64
}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, {"", 1}}

// ParseBytes reads a size. Decimal suffixes ("64M") are refused: half of those
// who write them mean the binary ones.
func ParseBytes(s string) (Bytes, error) {
	wrong := fmt.Errorf("%q is not a size such as 512Ki, 64Mi, 1Gi or a number of bytes", cut(s))
	for _, x := range suffixes {
		digits, ok := strings.CutSuffix(s, x.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		switch {
		case errors.Is(err, strconv.ErrRange), err == nil && n > uint64(math.MaxInt64/x.size):
			return 0, fmt.Errorf("%q is larger than a size can be", cut(s))
		case err != nil:
			return 0, wrong
		}
		return Bytes(int64(n) * x.size), nil
	}
	return 0, wrong
}

// String writes the size with the largest suffix that keeps it whole.
func (b Bytes) String() string {
	for _, x := range suffixes {
		if b != 0 && int64(b)%x.size == 0 {
			return strconv.FormatInt(int64(b)/x.size, 10) + x.name
		}
	}
	return "0"
}

// MarshalJSON writes a string with a suffix.
func (b Bytes) MarshalJSON() ([]byte, error) { return json.Marshal(b.String()) }

// UnmarshalJSON reads a string or a plain number.
func (b *Bytes) UnmarshalJSON(data []byte) (err error) {
	*b, err = ParseBytes(unquote(data))
	return err
}

// unquote returns the text of a JSON string, and any other JSON as it stands.
func unquote(data []byte) string {
	var text string
	if json.Unmarshal(data, &text) != nil {
		return string(data)
	}
	return text
}

// cut bounds what a message repeats of its input.
func cut(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
