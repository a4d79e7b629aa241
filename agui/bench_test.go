package agui

import (
	"fmt"
	"strings"
	"testing"
)

// stream makes a run of one call whose arguments are a text of size bytes in
// deltas of piece bytes, as frames of a stream.
func stream(size, piece int) (lines [][]byte, bytes int64) {
	add := func(e Event) {
		raw, err := Encode(e)
		if err != nil {
			panic(err)
		}
		lines = append(lines, raw)
		bytes += int64(len(raw))
	}
	add(run("r"))
	add(ToolCallStart{ToolCallID: "call_8kXw2mQ", ToolCallName: "word-count", ParentMessageID: "msg_1"})
	for n := 0; n < size; n += piece {
		add(ToolCallArgs{ToolCallID: "call_8kXw2mQ", Delta: strings.Repeat("x", piece)})
	}
	add(ToolCallEnd{ToolCallID: "call_8kXw2mQ"})
	add(ToolCallResult{MessageID: "res", ToolCallID: "call_8kXw2mQ", Content: Content{Text: "ok"}, Role: "tool"})
	add(finish("r"))
	return lines, bytes
}

// ingest is what a door does with a stream.
func ingest(b *testing.B, lines [][]byte) {
	var (
		d Decoder
		x Expander
		v Verifier
		a Assembler
	)
	for _, line := range lines {
		e, _, err := d.Decode(line)
		if err != nil {
			b.Fatal(err)
		}
		expanded, err := x.Expand(e)
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range expanded {
			if err := v.Check(e); err != nil {
				b.Fatal(err)
			}
			if _, err := a.Add(e); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := v.End(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkIngest decodes, expands, verifies and assembles one call. A call of
// four times the size takes four times as long: nothing grows faster than the
// stream.
func BenchmarkIngest(b *testing.B) {
	for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
		for _, piece := range []int{4, 64} {
			b.Run(fmt.Sprintf("%dKiB-by-%d", size>>10, piece), func(b *testing.B) {
				lines, n := stream(size, piece)
				b.SetBytes(n)
				b.ReportAllocs()
				for b.Loop() {
					ingest(b, lines)
				}
				events := float64(len(lines)) * float64(b.N)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/events, "ns/event")
			})
		}
	}
}

// BenchmarkRelay is what a gateway adds to each event that it passes on.
func BenchmarkRelay(b *testing.B) {
	for name, line := range map[string]string{
		"args":  `{"type":"TOOL_CALL_ARGS","toolCallId":"call_8kXw2mQ","delta":"{\"te"}`,
		"chunk": `{"type":"TOOL_CALL_CHUNK","toolCallId":"call_8kXw2mQ","toolCallName":"word-count","delta":"{\"te"}`,
		"text":  `{"type":"TEXT_MESSAGE_CONTENT","messageId":"msg_1","delta":"Let me "}`,
		"state": `{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/a/b","value":{"x":[1,2,3]}}]}`,
	} {
		b.Run(name, func(b *testing.B) {
			var (
				d Decoder
				x Expander
				v Verifier
			)
			open := []Event{run("r"), other(`{"type":"TEXT_MESSAGE_START","messageId":"msg_1"}`)}
			if name == "args" {
				open = append(open, ToolCallStart{ToolCallID: "call_8kXw2mQ", ToolCallName: "word-count"})
			}
			for _, e := range open {
				if err := v.Check(e); err != nil {
					b.Fatal(err)
				}
			}
			var out strings.Builder
			b.ReportAllocs()
			for b.Loop() {
				out.Reset()
				e, _, err := d.Decode([]byte(line))
				if err != nil {
					b.Fatal(err)
				}
				expanded, err := x.Expand(e)
				if err != nil {
					b.Fatal(err)
				}
				for _, e := range expanded {
					if err := v.Check(e); err != nil {
						b.Fatal(err)
					}
					raw, err := Encode(e)
					if err != nil {
						b.Fatal(err)
					}
					if err := WriteFrame(&out, Frame{Data: raw}); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
