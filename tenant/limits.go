package tenant

import (
	"cmp"

	"github.com/toolfleet/toolfleet/catalog"
)

// Bounds of a file.
const (
	// MaxWeight is the largest weight: a turn of the heaviest tenant must not
	// be an age to the lightest.
	MaxWeight = 1000
	// MaxCount bounds the numbers of calls; more than that is a slip of the
	// hand, and 0 is how to ask for no limit.
	MaxCount = 10_000_000
)

// Limits are what one tenant may have. The zero value of every field but
// Weight is no limit.
type Limits struct {
	// Weight is the tenant's share of the slots in relation to others' when
	// there are not enough for all, from 1 to [MaxWeight]; 1 by default.
	Weight int
	// MaxInFlight is how many of the tenant's calls may be with workers at a
	// time. What is over it waits.
	MaxInFlight int
	// CallsPerMinute is how many calls may be taken within any minute.
	CallsPerMinute int
	// MaxWaiting is how many calls may wait for their start.
	MaxWaiting int
	// BlobBytes is how many bytes the tenant's blobs may hold for a call to be
	// taken: long arguments, and what results left.
	BlobBytes int64
}

// none is what a tenant may have in a fleet without a file.
var none = Limits{Weight: 1}

// Quotas reports whether any quota is set, so that one who asks for every call
// can be done at once.
func (l Limits) Quotas() bool {
	return l.CallsPerMinute > 0 || l.MaxWaiting > 0 || l.BlobBytes > 0
}

// entry is a tenant's part of the file. What it does not say is nil.
type entry struct {
	Weight         *int           `json:"weight"`
	MaxInFlight    *int           `json:"maxInFlight"`
	CallsPerMinute *int           `json:"callsPerMinute"`
	MaxWaiting     *int           `json:"maxWaiting"`
	BlobBytes      *catalog.Bytes `json:"blobBytes"`
}

// over lays the entry over other limits.
func (e entry) over(l Limits) Limits {
	l.Weight = *cmp.Or(e.Weight, &l.Weight)
	l.MaxInFlight = *cmp.Or(e.MaxInFlight, &l.MaxInFlight)
	l.CallsPerMinute = *cmp.Or(e.CallsPerMinute, &l.CallsPerMinute)
	l.MaxWaiting = *cmp.Or(e.MaxWaiting, &l.MaxWaiting)
	if e.BlobBytes != nil {
		l.BlobBytes = int64(*e.BlobBytes)
	}
	return l
}
