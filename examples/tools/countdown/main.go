// Command countdown shows progress: it counts down ten times a second and says
// each time how far it is.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolfleet/toolfleet/tool"
)

const (
	step    = 100 * time.Millisecond
	highest = 600
)

type input struct {
	From int `json:"from" jsonschema:"where to begin; a step takes a tenth of a second"`
}

func main() {
	tool.Main(tool.DefineParallel("countdown", "Counts down to zero, ten steps a second, and shows how far it is.", countdown,
		tool.Annotate(tool.Annotations{ReadOnly: true}),
		tool.EditInput(func(s *jsonschema.Schema) {
			s.Properties["from"].Minimum = new(1.0)
			s.Properties["from"].Maximum = new(float64(highest))
		})))
}

func countdown(ctx context.Context, c *tool.Call, in input) (string, error) {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for left := in.From; left > 0; left-- {
		c.Update(tool.Update{
			Current: float64(in.From - left), Total: float64(in.From),
			Message: fmt.Sprintf("%d to go", left),
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("stopped with %d to go", left)
		}
	}
	c.Update(tool.Update{Current: float64(in.From), Total: float64(in.From), Message: "done"})
	return fmt.Sprintf("Counted down from %d.", in.From), nil
}
