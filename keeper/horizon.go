package keeper

import (
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/results"
)

// CheckHorizon refuses a configuration under which a call could outlive the
// log's memory of it: "one result, one start" holds only for as long as the
// log knows of the first. wait is the longest time in the queue, timeout the
// longest run, drain the longest drain of a worker.
func CheckHorizon(wait, timeout, drain time.Duration) error {
	if sum := wait + timeout + drain; sum >= results.MaxAge {
		return fmt.Errorf("keeper: a call may take %s (wait %s + timeout %s + drain %s), but its log is kept for %s only: shorten the wait",
			sum, wait, timeout, drain, results.MaxAge)
	}
	return nil
}
