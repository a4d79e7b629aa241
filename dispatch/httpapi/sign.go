package httpapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
)

const minSigningKey = 32

// The query of a signed URL. The tenant is in it because the request brings no
// token that would tell.
const (
	paramTenant    = "tenant"
	paramExpires   = "expires"
	paramSignature = "signature"
)

// signer makes and checks URLs that let whoever has them read one blob until
// they expire.
type signer struct {
	key  []byte
	life time.Duration
	now  func() time.Time
}

func newSigner(key []byte, life time.Duration) *signer {
	if key == nil {
		key = make([]byte, minSigningKey)
		rand.Read(key) // never fails
	}
	return &signer{key: key, life: life, now: time.Now}
}

// url makes the URL of a blob on the server that base leads to. The signature
// does not cover base: it is good wherever its key is.
func (s *signer) url(base string, id blob.ID) string {
	expires := s.now().Add(s.life).Unix()
	q := url.Values{
		paramTenant:    {id.Tenant},
		paramExpires:   {strconv.FormatInt(expires, 10)},
		paramSignature: {s.signature(id, expires)},
	}
	return fmt.Sprintf("%s/v1/calls/%s/blobs/%d?%s", strings.TrimSuffix(base, "/"), id.Key, id.N, q.Encode())
}

// signature covers everything that the URL says. A reference has one spelling
// and holds no line end, so the parts cannot run into each other.
func (s *signer) signature(id blob.ID, expires int64) string {
	mac := hmac.New(sha256.New, s.key)
	fmt.Fprintf(mac, "toolfleet blob url 1\n%s\n%d", id, expires)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// tenant returns the tenant that a request may act for because its URL is
// signed. It reports false when the request is anything but the reading of
// one blob whose signature is good.
func (s *signer) tenant(r *http.Request) (string, bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return "", false
	}
	q := r.URL.Query()
	if !q.Has(paramSignature) {
		return "", false
	}
	f := strings.Split(r.URL.Path, "/") // "", v1, calls, id, blobs, n
	if len(f) != 6 || f[0] != "" || f[1] != "v1" || f[2] != "calls" || f[4] != "blobs" {
		return "", false
	}
	key, err := call.ParseKey(f[3])
	if err != nil {
		return "", false
	}
	n, err := blobNumber(f[5])
	if err != nil || !call.ValidTenant(q.Get(paramTenant)) {
		return "", false
	}
	expires, err := strconv.ParseInt(q.Get(paramExpires), 10, 64)
	if err != nil || s.now().Unix() > expires {
		return "", false
	}
	id := blob.ID{Tenant: q.Get(paramTenant), Key: key, N: n}
	if !hmac.Equal([]byte(q.Get(paramSignature)), []byte(s.signature(id, expires))) {
		return "", false
	}
	return id.Tenant, true
}

// blobNumber reads the number of a blob in its one spelling.
func blobNumber(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || strconv.Itoa(n) != s {
		return 0, fmt.Errorf("%q is not the number of a blob", clip(s))
	}
	return n, nil
}

// clip shortens what a client sent for an error message.
func clip(s string) string {
	const n = 40
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
