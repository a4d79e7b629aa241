// Package aguidoor speaks AG-UI 1.0 over HTTP and server-sent events, in two
// ways.
//
// POST /agui/run is an agent that does nothing but run tools: it takes the
// calls that the messages of its input leave unanswered, runs them side by
// side and answers each in the stream.
//
// POST /agui/agents/{name}/run is a gateway in front of an agent of somebody
// else's. It adds the fleet's tools to those that the client advertises,
// relays the agent's stream, runs the calls of the fleet's tools as soon as
// they are complete, and runs the agent again with the answers, until it asks
// for nothing more that the fleet can give. The client sees one run: the agent
// proposes, the fleet disposes.
//
// # Whose call is it
//
// A tool that the client advertises is the client's, also when the fleet has
// one of that name: its calls are never answered here. In the gateway a tool
// of the fleet that the tenant may use is the fleet's, and whatever the agent
// says about its outcome is left out: the answer is ours. All other calls are
// the agent's own and pass untouched.
//
// # The same call again
//
// A call is known by the assistant message that carries it, and not by the
// run. A client whose connection broke sends the messages it has under a new
// runId and meets the same executions, running or ended. A connection that
// breaks cancels nothing; DELETE /agui/threads/{threadId}/runs/{runId} does, at
// whichever dispatcher.
//
// # What is trusted
//
// Nobody. The agent behind the gateway is held to the protocol by a strict
// decoder and a verifier, bounded in time, bytes, calls and rounds, and reached
// at its configured address alone. What the door itself sends goes through a
// verifier too.
package aguidoor
