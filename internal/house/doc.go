// Package house holds the rules of the whole repository as tests: which package
// may import which (floors and fences), how source files look, and that the
// documentation is true where a machine can tell.
//
// A rule is a test rather than a linter's setting when its reason has to be
// read beside it, or when it spans files that no linter looks at together. The
// package has no code of its own.
package house
