// Package tools holds the example tools, one program and one declaration in
// each folder. They are the shortest way to see what a tool can be: a function
// (word-count), progress (countdown), bytes (chart), code that nobody has read
// (shell), and every way to fail (flaky).
package tools
