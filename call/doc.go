// Package call says what a tool call is: its identity and key, the record that
// travels, the result that answers it, and the closed table of how it can end.
//
// A call is identified by (tenant, thread, scope, toolCallId). The scope is
// what stays the same when a client tries again, so that the same call met
// twice is one execution. Everything else about a call lives in its log (see
// package results) under the [Key] made of those four.
//
// There is one [Result] in the project: what a tool answers, what the log
// keeps and what a door sends are the same struct. A failing tool is a Result;
// a Go error is only ever a failure of ours.
package call
