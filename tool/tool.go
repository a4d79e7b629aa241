package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolfleet/toolfleet/call"
)

// ErrServerTool says that a tool is run by the model's provider, never here.
var ErrServerTool = errors.New("tool: the model's provider runs this tool")

// Tool is something a model can call. [Define] makes one of a function; a type
// of your own gives full control over schema and execution.
type Tool interface {
	// Info describes the tool. It is the same every time.
	Info() Info
	// Run answers one call. Whatever the tool did, well or badly, is in the
	// Result; an error means that it could not be run or its answer could not
	// be written. It is safe for concurrent use.
	Run(ctx context.Context, req Request) (Result, error)
}

// nameOf is t.Info().Name, without the schemas where those are still to be
// written.
func nameOf(t Tool) string {
	if t, ok := t.(interface{ name() string }); ok {
		return t.name()
	}
	return t.Info().Name
}

// Request is one call, as a tool receives it.
type Request struct {
	// ID is the toolCallId.
	ID string
	// Name is the name the model called.
	Name string
	// Input is the text of the arguments, a JSON object.
	Input json.RawMessage
	// OnUpdate takes progress; nil when nobody listens. It returns at once
	// and may be called from any goroutine. It may read an update's content
	// later, so whoever calls it does not write into that again.
	OnUpdate func(Update)
	// OnPanic takes the stack of a panic that became an error result, for a
	// log: a model has no use for it. Nil drops it.
	OnPanic func(value any, stack []byte)
}

// DefineServer declares a tool that the model's provider runs, such as
// web_search. It is listed and advertised; Run always fails with
// [ErrServerTool]. It panics when info has no valid name or no ServerType, or a
// ServerConfig that is no object.
func DefineServer(info Info) Tool {
	info.Kind = KindServer
	if err := info.validate(); err != nil {
		panic(fmt.Sprintf("tool: %q: %v", info.Name, err))
	}
	return serverTool{info}
}

type serverTool struct{ info Info }

func (t serverTool) Info() Info { return t.info }

func (t serverTool) Run(context.Context, Request) (Result, error) {
	return Result{}, fmt.Errorf("%w (%s)", ErrServerTool, t.info.Name)
}

// Hooks stand around every run of a tool. Either may be nil.
type Hooks struct {
	// Before may deny a call: its error becomes an error result of kind
	// declined, with the error's text as the reason.
	Before func(ctx context.Context, info Info, req Request) error
	// After may change a result or append to its Extra. It sees every result,
	// failed and denied ones too, but no error of Run.
	After func(ctx context.Context, info Info, req Request, r Result) Result
}

// Wrap returns t with hooks around it. Hooks of the outermost Wrap run first
// before a call and last after it.
func Wrap(t Tool, h Hooks) Tool { return hooked{t, h} }

type hooked struct {
	Tool
	hooks Hooks
}

func (t hooked) name() string { return nameOf(t.Tool) }

func (t hooked) Run(ctx context.Context, req Request) (Result, error) {
	r, err := t.run(ctx, req)
	if err != nil || t.hooks.After == nil {
		return r, err
	}
	r = t.hooks.After(ctx, t.Info(), req, r)
	r.CallID = req.ID // also of a result that the hook made
	return r, nil
}

func (t hooked) run(ctx context.Context, req Request) (Result, error) {
	if t.hooks.Before != nil {
		if denied := t.hooks.Before(ctx, t.Info(), req); denied != nil {
			r := call.Failure(call.KindDeclined, "The call was denied: "+denied.Error())
			r.CallID = req.ID
			return r, nil
		}
	}
	return t.Tool.Run(ctx, req)
}
