package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// routes builds the whole handler: observe → cors → guard → mux.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	api := humago.New(mux, s.apiConfig())
	api.UseMiddleware(as400)
	s.registerCalls(api)
	s.registerDead(api)
	s.registerEvents(api)
	s.registerBlobs(api)
	s.registerTools(api)
	s.registerCatalogue(api)
	s.registerWorkers(api)
	s.registerStatus(api)
	s.registerHealth(api)
	if s.config.MetricsHandler != nil {
		mux.Handle("GET /metrics", s.config.MetricsHandler)
	}
	describeRefusals(api.OpenAPI())
	serveOpenAPI(mux, api.OpenAPI())
	for _, door := range s.config.Doors {
		door.Routes(mux)
	}
	return s.observe(mux, s.cors(s.guard(notFound(mux))))
}

// apiConfig is huma without what it adds of its own: no documentation page
// (it loads scripts from elsewhere) and no $schema in every answer.
func (s *Server) apiConfig() huma.Config {
	c := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "Toolfleet",
				Version:     version(),
				Description: "Runs the tools that AI agents call. An answered call is a 200 even when the answer is an error result; everything else is a problem document (RFC 9457).",
			},
			Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		Transformers:                 []huma.Transformer{as400Body},
		RejectUnknownQueryParameters: true,
	}
	if s.tokens != nil {
		c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}
		c.Security = []map[string][]string{{"bearer": {}}}
	}
	return c
}

// version is the module's version as the Go tool stamped it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// serveOpenAPI serves the document, made once: huma's own handler makes it
// when it is first asked for, which two first requests race for.
func serveOpenAPI(mux *http.ServeMux, doc *huma.OpenAPI) {
	plain := func(id, path, summary, mediaType string) {
		doc.AddOperation(&huma.Operation{
			OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Tags: []string{"Operation"},
			Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{mediaType: {}}}},
		})
	}
	plain("openapi", "/openapi.json", "This document", "application/openapi+json")
	plain("metrics", "/metrics", "Prometheus metrics of this process", "text/plain")
	text, err := json.Marshal(doc)
	if err != nil {
		panic(fmt.Sprintf("httpapi: openapi: %v", err)) // the routes above are wrong
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		w.Write(text) //nolint:errcheck // the client is gone, and there is nobody to tell
	})
}

// response describes an answer that a handler writes by itself.
func response[T any](api huma.API, description string) *huma.Response {
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}
