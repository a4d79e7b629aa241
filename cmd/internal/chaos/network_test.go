package chaos

import (
	"net"
	"testing"
	"time"
)

// TestCable: what is in the namespace reaches our end of the cable, and not while
// it is cut.
func TestCable(t *testing.T) {
	n, err := makeNetwork(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.remove(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	l, err := net.Listen("tcp", net.JoinHostPort(n.outside, "0")) //nolint:noctx // takes no time that a context could bound
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := func() error {
		return inNamespace(n.ns, func() error {
			c, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second) //nolint:noctx // bounded
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}
	if err := dial(); err != nil {
		t.Errorf("over a whole cable: %v", err)
	}
	if err := n.cut(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := dial(); err == nil {
		t.Error("a cut cable carries")
	}
	if err := n.mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := dial(); err != nil {
		t.Errorf("over a mended cable: %v", err)
	}
}
