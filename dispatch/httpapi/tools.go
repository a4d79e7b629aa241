package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// tagTools groups the operations on tools in the document.
var tagTools = []string{"Tools"}

func (s *Server) registerTools(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "listTools", Method: http.MethodGet, Path: "/v1/tools", Tags: tagTools,
		Summary: "List the tools that may be called",
	}, s.listTools)
	huma.Register(api, huma.Operation{
		OperationID: "getTool", Method: http.MethodGet, Path: "/v1/tools/{name}", Tags: tagTools,
		Summary: "One tool",
	}, s.getTool)
}

type toolsOutput struct {
	Body struct {
		Tools []toolView `json:"tools"`
	}
}

// listTools is GET /v1/tools.
func (s *Server) listTools(ctx context.Context, _ *struct{}) (*toolsOutput, error) {
	specs := s.config.Tools.List(tenantOf(ctx))
	out := &toolsOutput{}
	out.Body.Tools = make([]toolView, 0, len(specs))
	for _, spec := range specs {
		out.Body.Tools = append(out.Body.Tools, viewTool(spec))
	}
	return out, nil
}

type toolInput struct {
	Name string `path:"name" maxLength:"256"`
}

type toolOutput struct{ Body toolView }

// getTool is GET /v1/tools/{name}.
func (s *Server) getTool(ctx context.Context, in *toolInput) (*toolOutput, error) {
	spec, ok := s.config.Tools.Resolve(tenantOf(ctx), in.Name)
	if !ok {
		return nil, problem(http.StatusNotFound, "There is no such tool.")
	}
	return &toolOutput{viewTool(spec)}, nil
}
