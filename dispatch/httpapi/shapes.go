package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/tool"
)

// The shapes below are this door's JSON. They are made from the project's one
// call and one result where they are written, and never travel inward.

// callView is a call and where it stands.
type callView struct {
	ID         call.Key    `json:"id" doc:"Id of the call in this API."`
	ToolCallID string      `json:"toolCallId"`
	ThreadID   string      `json:"threadId"`
	RunID      string      `json:"runId"`
	Tool       string      `json:"tool"`
	Status     call.Status `json:"status" enum:"queued,starting,running,succeeded,failed,timed_out,cancelled,refused,interrupted"`
	Admitted   time.Time   `json:"admitted"`
	Ended      *time.Time  `json:"ended,omitempty"`
	Attempts   int         `json:"attempts,omitempty" doc:"How often a worker has taken the call."`
	Cancelling bool        `json:"cancelling,omitempty" doc:"A cancel was asked for and the call has not ended yet."`
	RedriveOf  call.Key    `json:"redriveOf,omitempty" doc:"The call whose dead letter this one was made of."`
	Result     *resultView `json:"result,omitempty" doc:"There when the call has ended."`
}

// resultView is a result in this API's spelling; a tool's own JSON is
// snake_case.
type resultView struct {
	Content   parts           `json:"content"`
	IsError   bool            `json:"isError"`
	Extra     parts           `json:"extra,omitempty" doc:"Parts that something other than the tool put there."`
	Error     *call.Error     `json:"error,omitempty"`
	Execution *call.Execution `json:"execution,omitempty"`
}

// parts is a list of content parts with its schema.
type parts []agui.Part

// Schema describes an AG-UI content part; agui.Part writes its JSON itself.
func (parts) Schema(huma.Registry) *huma.Schema {
	source := &huma.Schema{
		Type: huma.TypeObject,
		Properties: map[string]*huma.Schema{
			"type":     {Type: huma.TypeString, Enum: []any{agui.SourceData, agui.SourceURL, agui.SourceFile}},
			"value":    {Type: huma.TypeString, Description: "Base64 of data, a URL, or a handle."},
			"mimeType": {Type: huma.TypeString},
			"provider": {Type: huma.TypeString},
		},
		Required: []string{"type", "value"},
	}
	part := &huma.Schema{
		Type: huma.TypeObject,
		Properties: map[string]*huma.Schema{
			"type":     {Type: huma.TypeString, Enum: []any{agui.PartText, agui.PartImage, agui.PartAudio, agui.PartVideo, agui.PartDocument}},
			"id":       {Type: huma.TypeString},
			"text":     {Type: huma.TypeString, Description: "Of a text part."},
			"source":   source,
			"metadata": {},
		},
		Required: []string{"type"},
	}
	return &huma.Schema{Type: huma.TypeArray, Items: part}
}

// viewResult makes blobs fetchable and the list of parts never null.
func viewResult(r call.Result, ref results.Ref, url dispatch.BlobURL) *resultView {
	r = dispatch.PublicResult(r, ref, url)
	if r.Content == nil {
		r.Content = []agui.Part{}
	}
	return &resultView{Content: r.Content, IsError: r.IsError, Extra: r.Extra, Error: r.Error, Execution: r.Execution}
}

// viewCall shows a standing.
func (s *Server) viewCall(ctx context.Context, ref results.Ref, st dispatch.Standing) callView {
	c := st.Job.Call
	v := callView{
		ID: ref.Key, ToolCallID: c.ToolCallID, ThreadID: c.ThreadID, RunID: c.RunID, Tool: c.Tool,
		Status: st.Status, Admitted: st.Job.Admitted.UTC(), Attempts: st.Claims,
		Cancelling: st.Cancel != nil && st.Result == nil, RedriveOf: c.RedriveOf,
	}
	if st.Result != nil {
		ended := st.Ended.UTC()
		v.Ended = &ended
		v.Result = viewResult(*st.Result, ref, dispatch.CallerOf(ctx).BlobURL)
	}
	return v
}

// callLine is one call of a list.
type callLine struct {
	ID         call.Key    `json:"id"`
	ToolCallID string      `json:"toolCallId"`
	ThreadID   string      `json:"threadId"`
	Tool       string      `json:"tool"`
	Status     call.Status `json:"status"`
	Kind       call.Kind   `json:"kind,omitempty" doc:"How the call failed; absent when it succeeded or has not ended."`
	Admitted   time.Time   `json:"admitted"`
	Ended      *time.Time  `json:"ended,omitempty"`
}

func viewLine(s results.Summary) callLine {
	l := callLine{ID: s.Key, ToolCallID: s.ToolCallID, ThreadID: s.ThreadID, Tool: s.Tool, Status: s.Status, Kind: s.Kind, Admitted: s.Admitted.UTC()}
	if !s.Ended.IsZero() {
		ended := s.Ended.UTC()
		l.Ended = &ended
	}
	return l
}

// toolView is what a tenant may know of a tool: what a model is told, and how
// it runs. Environment and command are the operator's.
type toolView struct {
	Name         string           `json:"name"`
	Type         string           `json:"type" enum:"function,server"`
	Description  string           `json:"description"`
	UseWhen      string           `json:"useWhen,omitempty"`
	Parameters   json.RawMessage  `json:"parameters,omitempty"`
	OutputSchema json.RawMessage  `json:"outputSchema,omitempty"`
	Annotations  tool.Annotations `json:"annotations"`
	Parallel     bool             `json:"parallel,omitempty"`
	Approval     string           `json:"approval,omitempty"`
	Image        string           `json:"image,omitempty"`
	Isolation    string           `json:"isolation,omitempty"`
	Runtime      string           `json:"runtime,omitempty"`
	Class        string           `json:"class,omitempty"`
	Limits       *limitsView      `json:"limits,omitempty"`
	FilesIn      *[]string        `json:"filesIn,omitempty" doc:"MIME types of the files that a call may bring; absent when it may bring any."`
	QueueTimeout string           `json:"queueTimeout,omitempty" doc:"How long a call may wait, as a Go duration."`
	SpecDigest   string           `json:"specDigest"`
}

// limitsView is a tool's limits as its spec writes them.
type limitsView struct {
	Timeout string  `json:"timeout"`
	CPU     float64 `json:"cpu"`
	Memory  string  `json:"memory"`
	Pids    int64   `json:"pids"`
	Disk    string  `json:"disk"`
	Output  string  `json:"output"`
}

func viewTool(s *catalog.Spec) toolView {
	v := toolView{
		Name: s.Name, Type: s.Type, Description: s.Description, UseWhen: s.UseWhen,
		Parameters: s.Parameters, OutputSchema: s.OutputSchema, Annotations: s.Annotations,
		Parallel: s.Parallel, SpecDigest: s.Digest(),
	}
	if s.Type == catalog.TypeServer {
		return v
	}
	v.Approval, v.Image, v.Isolation, v.Runtime, v.Class = s.Approval, s.Image, s.Isolation, s.Runtime, s.Class
	v.QueueTimeout = s.QueueTimeout.String()
	if s.Files != nil {
		v.FilesIn = s.Files.In
	}
	l := s.Limits
	v.Limits = &limitsView{
		Timeout: l.Timeout.String(), CPU: l.CPU, Memory: l.Memory.String(),
		Pids: l.Pids, Disk: l.Disk.String(), Output: l.Output.String(),
	}
	return v
}
