// Package tool is the tool model for Go authors: what a tool is, how one is
// made of a Go function, and how a program serves it inside a sandbox.
//
//	type in struct {
//		Text string `json:"text" jsonschema:"the text to count in"`
//	}
//
//	func main() {
//		tool.Main(tool.Define("word-count", "Counts words in a text.",
//			func(ctx context.Context, c *tool.Call, in in) (int, error) {
//				return len(strings.Fields(in.Text)), nil
//			}))
//	}
//
// [Define] derives the JSON Schema of the arguments from the Go type when the
// tool is made, so a type that has no schema fails a program at its start and
// not in a conversation. [Main] reads the arguments from stdin, runs the
// function, and answers on file descriptor 3; run by hand, it prints. With
// --describe the program prints its tool files, for a fleet to load.
//
// A failing function is a result that says so: whatever it returns, also an
// error, also a panic, reaches the model as text it can act on. A Go error
// from [Tool.Run] means only that the tool could not be served.
package tool
