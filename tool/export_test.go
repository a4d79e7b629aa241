package tool

import (
	"context"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
)

// Described are the tools of the program that describes itself.
var Described = []Tool{
	DefineParallel("search", `Searches: "quickly".`, func(context.Context, *Call, struct {
		Text  string `json:"text" jsonschema:"what to look for"`
		Order string `json:"order,omitempty"`
	},
	) ([]int, error) {
		return nil, nil
	}, UseWhen("Something is lost, or may be."), Annotate(Annotations{ReadOnly: true}), EditInput(func(s *jsonschema.Schema) {
		s.Properties["order"].Enum = []any{"rising", "off", "1"}
	})),
	own{info: Info{Name: "own", Description: "A type of its own.", InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"anyOf":[{"type":"null"},{"const":18446744073709551617},{"default":"\ud83d\ude00"}]}}}`)}},
	DefineServer(Info{Name: "web", Description: "Searches the web.", ServerType: "web_search", ServerConfig: json.RawMessage(`{"max_uses":3,"domains":[]}`)}),
}

// Declare writes the tool file of info.
func Declare(info Info) ([]byte, error) { return declare(info, "local/t:1") }
