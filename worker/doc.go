// Package worker turns one delivery into one published result.
//
// [Worker.Handle] reads like the specification of a call's second half: look
// whether there is anything left to do, claim the attempt, take a sandbox,
// take the start fence, run, publish the result, acknowledge. Its deliveries
// come from package queue, its fences and its voice are package results, and
// the work happens in package sandbox.
//
// Whatever the tool does is a result. Only a failure of ours is tried again,
// and only while nothing can have happened twice: before the start every tool
// may be tried again, after it only an idempotent one.
package worker
