// Package aguidoor speaks AG-UI 1.0 over HTTP and server-sent events.
//
// POST /agui/run is an agent that does nothing but run tools: it takes the
// calls that the messages of its input leave unanswered, runs them side by
// side and answers each in the stream. A tool that the client advertises is
// the client's, also when the fleet has one of that name: its calls are never
// answered here.
//
// A call is known by the assistant message that carries it, and not by the
// run. A client whose connection broke sends the messages it has under a new
// runId and meets the same executions, running or ended. A connection that
// breaks cancels nothing; DELETE /agui/threads/{threadId}/runs/{runId} does, at
// whichever dispatcher.
package aguidoor
