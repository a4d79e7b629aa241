package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/tool"
)

// errInput says that the server did not answer but asked back.
var errInput = errors.New("mcp: the server asks for input in the middle of the call")

// Call has the server p call its tool with the arguments in p.Stdin, a JSON
// object. The progress that it tells until its answer goes to sink.Update, as
// update messages of package tool. The end of ctx cancels the call: the server
// is told so, and then stopped as p.Grace says.
//
// The answer is nil when the server gave none; exit tells why then. An answer may
// be an error of the tool or of the server. An err is a failure of ours, as that
// of run.
func Call(ctx context.Context, run Runner, p sandbox.Process, sink sandbox.Sink, name string) (answer *call.Result, exit sandbox.Exit, err error) {
	params := &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(p.Stdin)}
	params.SetProgressToken(progressToken)
	t := &transport{stdio: newStdio(), progress: progress(sink.Update)}
	var result *mcp.CallToolResult
	exit, talked, err := t.converse(ctx, run, p, sink, func(ctx context.Context, s *mcp.ClientSession) error {
		var err error
		if result, err = s.CallTool(ctx, params); err == nil && result.NeedsInput() {
			err = errInput
		}
		return err
	})
	switch {
	case talked == nil:
		return resultOf(result, t.heard()), settled(exit), nil
	case errors.Is(talked, errInput):
		return failure("The MCP server asks for input in the middle of the call, and nobody is there to give it."), settled(exit), nil
	case refused(talked) != nil:
		e := refused(talked)
		return failure(fmt.Sprintf("The MCP server answered with an error: %s (code %d).", clip(e.Message), e.Code)), settled(exit), nil
	case err != nil:
		return nil, exit, err
	}
	return nil, t.unanswered(ctx, exit, talked), nil
}

// failure is an error result of the tool's doing.
func failure(sentence string) *call.Result {
	r := call.Failure(call.KindToolError, sentence)
	return &r
}

// resultOf is what the server answered, in the project's shape of a result.
func resultOf(result *mcp.CallToolResult, raw []byte) *call.Result {
	var structured struct {
		Content json.RawMessage `json:"structuredContent"`
	}
	_ = json.Unmarshal(raw, &structured) // the SDK has read it already
	r := &call.Result{IsError: result.IsError}
	r.Content, r.Dropped = parts(result.Content)
	if text := unsaid(r.Content, structured.Content); text != "" {
		r.Content = append(r.Content, agui.Text(text))
	}
	if r.IsError {
		r.Error = &call.Error{Kind: call.KindToolError, Message: "The tool answered with an error."}
	}
	return r
}

// progress makes update messages of what a server tells.
func progress(update func([]byte)) func(mcp.ProgressNotificationParams) {
	if update == nil {
		return nil
	}
	return func(p mcp.ProgressNotificationParams) {
		message, err := json.Marshal(struct {
			Type    string  `json:"type"`
			Current float64 `json:"current,omitempty"`
			Total   float64 `json:"total,omitempty"`
			Message string  `json:"message,omitempty"`
		}{tool.MessageUpdate, p.Progress, p.Total, clip(p.Message)})
		if err == nil {
			update(message)
		}
	}
}
