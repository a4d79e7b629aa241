package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
)

// Catalogue is what operators see and change. *catalog.Follower is one.
type Catalogue interface {
	// State is what is served, with where it comes from and what is wrong.
	State() (catalog.State, <-chan struct{})
	// Apply changes the fleet's bucket, and follows the change.
	Apply(ctx context.Context, c catalog.Change) (catalog.Outcome, error)
}

// tagCatalogue groups the operations on the catalogue in the document.
var tagCatalogue = []string{"Catalogue"}

const forOperators = "For operators: on a server with tokens, for those whose line in the token file says \"operator\". "

func (s *Server) registerCatalogue(api huma.API) {
	if s.config.Catalogue == nil {
		return
	}
	huma.Register(api, huma.Operation{
		OperationID: "getCatalogue", Method: http.MethodGet, Path: "/v1/catalog", Tags: tagCatalogue,
		Summary:     "All tools of this dispatcher, and where they come from",
		Description: forOperators + "Tools of all tenants, from the dispatcher's files and from the bucket that the fleet shares, and what keeps others from being served.",
	}, s.getCatalogue)
	huma.Register(api, huma.Operation{
		OperationID: "getDeclaration", Method: http.MethodGet, Path: "/v1/catalog/{name}", Tags: tagCatalogue,
		Summary: "The declaration of one tool", Description: forOperators + "The whole of it, as the tool file has it.",
	}, s.getDeclaration)
	huma.Register(api, huma.Operation{
		OperationID: "changeCatalogue", Method: http.MethodPost, Path: "/v1/catalog", Tags: tagCatalogue,
		Summary: "Add, change and delete tools of the fleet",
		Description: forOperators + "Changes the bucket that all dispatchers and workers share; they follow within a second, and this one before it answers. All of the change happens or nothing. " +
			"400 when a tool is faulty, with every fault; 404 when a tool to be deleted is not there; 409 when the catalogue is not at ifRevision, or others change it without a pause.",
	}, s.changeCatalogue)
}

// operators is the refusal of somebody who is none; nil for an operator.
func operators(ctx context.Context) error {
	if dispatch.CallerOf(ctx).Operator {
		return nil
	}
	return problem(http.StatusForbidden, "The catalogue is shown to operators only: the token's line in the token file must end with the word operator.")
}

// servedView is a tool with where it comes from.
type servedView struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	Description string   `json:"description"`
	Source      string   `json:"source" enum:"file,bucket"`
	File        string   `json:"file,omitempty" doc:"Of source file: where the dispatcher has it."`
	Hides       bool     `json:"hides,omitempty" doc:"The bucket has a tool of this name too, which the file keeps from being served here."`
	Digest      string   `json:"digest" doc:"Of the declaration."`
	Tenants     []string `json:"tenants,omitempty" doc:"Who may see it; absent means all."`
}

type faultView struct {
	Source  string `json:"source" enum:"file,bucket"`
	Message string `json:"message"`
}

type catalogueOutput struct {
	Body struct {
		Revision uint64       `json:"revision" doc:"Of the bucket; it grows with every change. 0: never changed."`
		Changed  *time.Time   `json:"changed,omitempty" doc:"When the bucket was changed last."`
		Loaded   *time.Time   `json:"loaded,omitempty" doc:"When files and bucket were last read without a fault."`
		Tools    []servedView `json:"tools"`
		Faults   []faultView  `json:"faults,omitempty" doc:"What is not served, and why."`
	}
}

// getCatalogue is GET /v1/catalog.
func (s *Server) getCatalogue(ctx context.Context, _ *struct{}) (*catalogueOutput, error) {
	if err := operators(ctx); err != nil {
		return nil, err
	}
	state, _ := s.config.Catalogue.State()
	out := &catalogueOutput{}
	out.Body.Revision = state.Revision
	out.Body.Changed, out.Body.Loaded = known(state.Changed), known(state.Loaded)
	out.Body.Tools = make([]servedView, 0, len(state.Tools))
	for _, t := range state.Tools {
		out.Body.Tools = append(out.Body.Tools, servedView{
			Name: t.Spec.Name, Type: t.Spec.Type, Description: t.Spec.Description, Tenants: t.Spec.Tenants,
			Source: t.Source, File: t.File, Hides: t.Hides, Digest: t.Digest,
		})
	}
	for _, f := range state.Faults {
		out.Body.Faults = append(out.Body.Faults, faultView(f))
	}
	return out, nil
}

// known is t, or nil for no time at all.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

type declarationOutput struct {
	Body struct {
		Source   string          `json:"source" enum:"file,bucket"`
		File     string          `json:"file,omitempty"`
		Hides    bool            `json:"hides,omitempty"`
		Digest   string          `json:"digest"`
		Revision uint64          `json:"revision" doc:"Of the bucket."`
		Spec     json.RawMessage `json:"spec" doc:"The declaration, with every default filled in."`
	}
}

// getDeclaration is GET /v1/catalog/{name}.
func (s *Server) getDeclaration(ctx context.Context, in *toolInput) (*declarationOutput, error) {
	if err := operators(ctx); err != nil {
		return nil, err
	}
	state, _ := s.config.Catalogue.State()
	for _, t := range state.Tools {
		if t.Spec.Name != in.Name {
			continue
		}
		raw, err := json.Marshal(t.Spec)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		out := &declarationOutput{}
		out.Body.Source, out.Body.File, out.Body.Hides, out.Body.Digest = t.Source, t.File, t.Hides, t.Digest
		out.Body.Revision, out.Body.Spec = state.Revision, raw
		return out, nil
	}
	return nil, problem(http.StatusNotFound, "There is no such tool.")
}

// maxChange is how many tools one request may bring or delete.
const maxChange = catalog.MaxTools

type changeInput struct {
	Body struct {
		Tools      []json.RawMessage `json:"tools,omitempty" doc:"Declarations, as in a tool file."`
		Delete     []string          `json:"delete,omitempty" doc:"Names of tools that are to go. Each must be in the bucket."`
		Prune      bool              `json:"prune,omitempty" doc:"Delete every tool of the bucket that is not in tools."`
		DryRun     bool              `json:"dryRun,omitempty" doc:"Tell what would change, and change nothing."`
		IfRevision *uint64           `json:"ifRevision,omitempty" doc:"Change the bucket only if it is at this revision."`
	}
}

// stepView is what a change does to a tool.
type stepView struct {
	Name   string `json:"name"`
	Action string `json:"action" enum:"added,changed,unchanged,deleted"`
	Digest string `json:"digest,omitempty" doc:"Of the declaration, afterwards."`
	Was    string `json:"was,omitempty" doc:"Of the declaration, before."`
	Hidden bool   `json:"hidden,omitempty" doc:"This dispatcher has a file with a tool of the name, and serves that."`
}

type changeOutput struct {
	Body struct {
		Revision uint64     `json:"revision" doc:"Of the bucket, afterwards."`
		Steps    []stepView `json:"steps"`
	}
}

// changeCatalogue is POST /v1/catalog.
func (s *Server) changeCatalogue(ctx context.Context, in *changeInput) (*changeOutput, error) {
	if err := operators(ctx); err != nil {
		return nil, err
	}
	b := &in.Body
	if len(b.Tools) > maxChange || len(b.Delete) > maxChange {
		return nil, problem(http.StatusBadRequest, fmt.Sprintf("At most %d tools can be applied or deleted at once.", maxChange))
	}
	specs, err := declarations(b.Tools)
	if err != nil {
		return nil, s.failChange(ctx, err)
	}
	done, err := s.config.Catalogue.Apply(ctx, catalog.Change{Tools: specs, Delete: b.Delete, Prune: b.Prune, DryRun: b.DryRun, IfRevision: b.IfRevision})
	if err != nil {
		return nil, s.failChange(ctx, err)
	}
	if done.Moves() && !b.DryRun {
		s.config.Logger.Info("the fleet's catalogue was changed", "tenant", tenantOf(ctx), "revision", done.Revision, "tools", len(b.Tools), "deleted", len(b.Delete), "prune", b.Prune)
	}
	files := map[string]bool{}
	state, _ := s.config.Catalogue.State()
	for _, t := range state.Tools {
		files[t.Spec.Name] = t.Source == catalog.FromFile
	}
	out := &changeOutput{}
	out.Body.Revision = done.Revision
	out.Body.Steps = make([]stepView, 0, len(done.Steps))
	for _, step := range done.Steps {
		out.Body.Steps = append(out.Body.Steps, stepView{
			Name: step.Name, Action: step.Action, Digest: step.Digest, Was: step.Was,
			Hidden: files[step.Name] && step.Action != catalog.Deleted,
		})
	}
	return out, nil
}

// declarations reads what a request brings. The error is [catalog.Problems], of
// all of it.
func declarations(raws []json.RawMessage) ([]catalog.Spec, error) {
	var problems catalog.Problems
	specs := make([]catalog.Spec, 0, len(raws))
	for i, raw := range raws {
		spec, err := catalog.ParseJSON(raw)
		faults, bad := errors.AsType[catalog.Problems](err)
		for _, f := range faults {
			f.Field = strings.TrimSuffix(fmt.Sprintf("tools[%d].%s", i, f.Field), ".")
			problems = append(problems, f)
		}
		if !bad {
			specs = append(specs, spec)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return specs, nil
}

// failChange is fail for what can only happen to changes of the catalogue.
func (s *Server) failChange(ctx context.Context, err error) error {
	faults, bad := errors.AsType[catalog.Problems](err)
	switch {
	case bad:
		p := problem(http.StatusBadRequest, "The change is faulty; nothing was changed.")
		for _, f := range faults {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Message: f.Message, Location: strings.TrimSuffix("body."+f.Field, ".")})
		}
		return p
	case errors.Is(err, catalog.ErrUnknown):
		return problem(http.StatusNotFound, sentence(err))
	case errors.Is(err, catalog.ErrConflict):
		return problem(http.StatusConflict, sentence(err))
	case errors.Is(err, catalog.ErrFull):
		return problem(http.StatusInsufficientStorage, sentence(err))
	case errors.Is(err, catalog.ErrUnavailable) && ctx.Err() == nil:
		s.config.Logger.Warn("the fleet's catalogue was not changed", "error", err)
		return problem(http.StatusServiceUnavailable, "The fleet's catalogue does not answer now. Whether it was changed is not known: apply the same change again.")
	case ctx.Err() == nil:
		s.config.Logger.Error("the fleet's catalogue was not changed", "error", err)
		return problem(http.StatusInternalServerError, sentence(err))
	}
	return s.fail(ctx, err)
}

// sentence is what an error of package catalog says.
func sentence(err error) string {
	return "Nothing was changed: " + strings.TrimPrefix(err.Error(), "catalog: ") + "."
}
