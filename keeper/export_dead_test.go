package keeper

import (
	"context"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/results"
)

// Finish lets a test publish a result as a round does that judged a moment ago.
func Finish(ctx context.Context, k *Keeper, ref results.Ref, st results.State, r call.Result) (won bool, err error) {
	return (&round{Keeper: k, now: time.Now()}).finish(ctx, ref, st, r)
}
