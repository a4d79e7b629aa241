package dispatch_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natsdtest.Main(m)) }
