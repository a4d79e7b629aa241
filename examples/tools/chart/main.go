// Command chart returns bytes: a function that returns []byte answers with one
// media part, here an image.
package main

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolfleet/toolfleet/tool"
)

const (
	most   = 100 // values
	height = 240
	bar    = 16
	gap    = 4
)

type input struct {
	Values []float64 `json:"values" jsonschema:"the heights of the bars, none below zero"`
}

func main() {
	tool.Main(tool.DefineParallel("chart", "Draws a bar chart of numbers, as a PNG.", draws,
		tool.UseWhen("Use it when a person should see how numbers compare."),
		tool.Annotate(tool.Annotations{ReadOnly: true}),
		tool.EditInput(func(s *jsonschema.Schema) {
			values := s.Properties["values"]
			values.MinItems, values.MaxItems = new(1), new(most)
			values.Items.Minimum = new(0.0)
		})))
}

func draws(_ context.Context, _ *tool.Call, in input) ([]byte, error) {
	highest := 0.0
	for _, v := range in.Values {
		highest = math.Max(highest, v)
	}
	if highest == 0 {
		return nil, errors.New("all values are zero: there is nothing to draw")
	}
	canvas := image.NewRGBA(image.Rect(0, 0, gap+len(in.Values)*(bar+gap), height+2*gap))
	draw.Draw(canvas, canvas.Bounds(), image.White, image.Point{}, draw.Src)
	for i, v := range in.Values {
		left := gap + i*(bar+gap)
		top := gap + height - int(math.Round(v/highest*height))
		draw.Draw(canvas, image.Rect(left, top, left+bar, gap+height), image.NewUniform(color.RGBA{R: 0x2f, G: 0x6f, B: 0xb4, A: 0xff}), image.Point{}, draw.Src)
	}
	var b bytes.Buffer
	err := png.Encode(&b, canvas)
	return b.Bytes(), err
}
