package worker

import (
	"context"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/worker/mcp"
)

// speak runs p in the tool's protocol. An executable is run and says in its exit
// what it has to say; an MCP server is asked, and reply is its answer, or nil.
func (a *attempt) speak(ctx context.Context, sb *sandbox.Sandbox, p sandbox.Process, sink sandbox.Sink) (last *sandbox.Sandbox, exit sandbox.Exit, reply *call.Result, err error) {
	if a.job.Spec.Protocol != catalog.ProtocolMCP {
		last, exit, err = a.runIn(ctx, sb, p, sink)
		return last, exit, nil, err
	}
	run := func(ctx context.Context, p sandbox.Process, sink sandbox.Sink) (sandbox.Exit, error) {
		var exit sandbox.Exit
		var err error
		sb, exit, err = a.runIn(ctx, sb, p, sink)
		return exit, err
	}
	reply, exit, err = mcp.Call(ctx, run, p, sink, a.job.Spec.ServerTool())
	return sb, exit, reply, err
}
