package keeper

import "time"

// SetSettle makes a keeper less patient.
func SetSettle(k *Keeper, d time.Duration) { k.settle = d }
