// Package dispatch is the client side of the fleet: it takes calls, checks
// them, puts them to work, and follows them to their end. Doors (HTTP, AG-UI,
// and others later) translate a protocol to it and hold no rules of their own.
//
// [Dispatcher.Submit] opens a call's log and only then queues the job, so a
// call that was taken is never lost: a record without a job is pushed again by
// the keeper. A refusal opens a log too and is an answer like any other.
//
// What a client sees of a call is a view of its log. [Dispatcher.Follow] shows
// it as a whole AG-UI run, from the beginning or resumed after any event;
// [Native] turns that run into tool_execution events. A follower that goes away
// cancels nothing, and any dispatcher can go on where another stopped.
package dispatch
