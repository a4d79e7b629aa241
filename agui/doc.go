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
// The package imports nothing else of this project.
package agui
