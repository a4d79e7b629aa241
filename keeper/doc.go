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
package keeper
