// Package agui is the tool-call part of the AG-UI 1.0 protocol on the wire:
// events, content parts, strict decoding, chunk expansion, a sequence verifier
// that is stricter than the official client, an assembler of calls, and the
// SSE and NDJSON framings.
//
// TOOL_CALL_START, ARGS and END describe how a model *generates* a call, not
// how it runs; a tool runs after END, its progress travels as activities and
// its answer as TOOL_CALL_RESULT. The protocol knows no error result: a failed
// tool is a result whose text says so.
//
// What comes from a peer goes through four stages, each strict:
//
//	event, warnings, err := decoder.Decode(frame)  // one event, its shape
//	events, err := expander.Expand(event)          // chunks become triads
//	err = verifier.Check(event)                    // the order of the stream
//	call, err := assembler.Add(event)              // whole calls, at their END
//
// A run begins with a [RunAgentInput], read by [DecodeInput]. What its messages
// leave unanswered is [PendingCalls]; a verifier and an assembler that are
// seeded with the messages ([Verifier.Seed], [Assembler.Seed]) accept the
// answers of those calls. For a peer that declared no version
// ([RunAgentInput.Legacy]) every event goes through [Downgrade] on its way out.
// [Reply] makes the messages of the next run, when every pending call has its
// answer ([Answered], [Failed], [Declined]); a [Thread] is what an input has
// become after a stream, for whoever runs an agent again.
//
// The package imports nothing else of this project.
package agui
