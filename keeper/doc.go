// Package keeper is the housekeeper of the fleet: what must happen to a call
// when nobody is looking.
//
// Doors, dispatchers and workers die. Whatever they leave unfinished has an
// open log, and a keeper ends it or sends it on: a call that waited too long,
// one that was admitted and never queued, one whose workers all died, one
// whose tool was started and may not be started again, one that was refused or
// cancelled and not answered yet.
//
// Any number of keepers may run. They need no election: every step is an
// append that the log takes once (package results), or a push that the queue
// takes once (package queue), so two keepers with the same idea do no harm.
//
// It is also where calls get their turn. A [Scheduler] moves them from where they
// wait to where workers take them, as far as slots and limits allow, and sees
// that one tenant's thousands do not keep another's single call waiting. One in
// the fleet is elected, for fairness needs one who sees all, not for safety.
package keeper
