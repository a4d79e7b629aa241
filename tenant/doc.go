// Package tenant knows what each tenant of a fleet may have: its share of the
// slots and its quotas, as an operator writes them into one file.
//
// Two kinds of bound stand side by side, and they act at different ends of a
// call's wait. A share ([Limits.Weight], [Limits.MaxInFlight]) says how a
// tenant's calls leave the queue: the scheduler lets them wait, and none fails
// for it. A quota ([Limits.CallsPerMinute], [Limits.MaxWaiting],
// [Limits.BlobBytes]) says how they enter: the dispatcher refuses what is over
// it, with an error result that says so.
//
// [Open] reads the file, [Set.Run] reads it again when it has changed, so that
// a quota is raised without a restart. [Set.Of] answers from memory and is made
// to be asked for every call. Which tenant a request belongs to is decided by
// its token, and no business of this package.
package tenant
