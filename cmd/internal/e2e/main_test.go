//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"
)

// stage is the environment variable that tells which of these processes this is:
// the one that was started by hand, the first of the namespaces, the test, or what
// is about to become the kubelet.
const (
	stage        = "TOOLFLEET_E2E_STAGE"
	stageFirst   = "first"
	stageInside  = "inside"
	stageKubelet = "kubelet"
)

// TestMain runs the tests inside of namespaces.
func TestMain(m *testing.M) {
	var code int
	var err error
	switch os.Getenv(stage) {
	case stageInside:
		code = m.Run()
	case stageFirst:
		code, err = first()
	case stageKubelet:
		err = becomeKubelet(os.Args[1:])
	default:
		code, err = outside()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}
