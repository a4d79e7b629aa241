package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolfleet/toolfleet/sandbox"
)

// Bounds of a list of tools. A model chooses well among some dozens.
const (
	MaxTools = 1000
	maxPages = 100
)

// Tool is a tool as its server announces it.
type Tool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema"`
	Annotations struct {
		Title       string `json:"title"`
		ReadOnly    bool   `json:"readOnlyHint"`
		Idempotent  bool   `json:"idempotentHint"`
		Destructive bool   `json:"destructiveHint"`
		OpenWorld   bool   `json:"openWorldHint"`
	} `json:"annotations"`
	Execution struct {
		TaskSupport string `json:"taskSupport"`
	} `json:"execution"`
}

// List asks the server p which tools it has, page by page, at most [MaxTools] in
// 100 pages. An error is a sentence for who wants to know: of the server's doing,
// with the end of what it wrote to stderr, or as that of run.
func List(ctx context.Context, run Runner, p sandbox.Process) ([]Tool, error) {
	var tools []Tool
	t := &transport{stdio: newStdio()}
	exit, talked, err := t.converse(ctx, run, p, sandbox.Sink{}, func(ctx context.Context, s *mcp.ClientSession) error {
		cursor := ""
		for range maxPages {
			if _, err := s.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor}); err != nil {
				return err
			}
			var page struct {
				Tools []Tool `json:"tools"`
				Next  string `json:"nextCursor"`
			}
			if err := json.Unmarshal(t.heard(), &page); err != nil {
				return fmt.Errorf("its list of tools cannot be read: %w", err)
			}
			if tools = append(tools, page.Tools...); len(tools) > MaxTools {
				return errMany
			}
			if cursor = page.Next; cursor == "" {
				return nil
			}
		}
		return errPages
	})
	switch {
	case talked == nil:
		return tools, nil
	case errors.Is(talked, errMany), errors.Is(talked, errPages):
		return nil, talked
	case refused(talked) != nil:
		return nil, fmt.Errorf("mcp: the server refused to list its tools: %s", clip(refused(talked).Message))
	case err != nil:
		return nil, err
	}
	return nil, ending(ctx, t.unanswered(ctx, exit, talked))
}

var (
	errMany  = fmt.Errorf("mcp: the server announces more than %d tools", MaxTools)
	errPages = fmt.Errorf("mcp: the server's list of tools has more than %d pages", maxPages)
)

// ending says how a server ended that did not answer.
func ending(ctx context.Context, exit sandbox.Exit) error {
	how := exit.Detail
	switch {
	case exit.Cause == sandbox.CauseStopped:
		how = fmt.Sprintf("it did not answer in time (%v)", context.Cause(ctx))
	case exit.Cause == sandbox.CauseExited:
		how = fmt.Sprintf("it exited with code %d", exit.Code)
	case exit.Signal != "":
		how = "it was killed by " + exit.Signal
	}
	if how == "" {
		how = string(exit.Cause)
	}
	if n := len(exit.Stderr); n > 0 {
		how += "; it said:\n" + clip(string(exit.Stderr[max(0, n-maxWord):]))
	}
	return fmt.Errorf("mcp: the server gave no list of its tools: %s", how)
}
