// Package catalog knows which tools exist: it reads their declarations, refuses
// what is wrong with them, and checks calls against them.
//
// A tool is declared in a file of kind Tool ([Spec]); [LoadDir] finds such
// files and reports every fault with file, line and field. A [Catalog] holds
// the loaded specs with their schemas compiled. [Catalog.Check] turns a call
// into a [Job], the record that opens the call's log and waits in the queue,
// or into an error result that tells a model all it must mend.
//
// A fleet's tools change while it runs. [Store] is the bucket that all of a fleet
// shares, whose changes are seen whole or not at all; a [Follower] keeps a Catalog
// as the files of its process and the bucket are. A job carries the declaration
// that its call was checked against, so a change takes nothing from calls that
// wait.
//
// A spec is strict and closed. Everything the design knows is a field from the
// first day, and a spec that asks for something not built yet is refused when
// it is loaded: a limit or a rule that is silently ignored is worse than none.
package catalog
