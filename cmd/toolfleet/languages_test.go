package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// TestToolsInOtherLanguages calls what is in images with an interpreter or with
// Debian's packages: the tools of docs/tool-protocol.md, as they stand there, and the
// examples python and pdf.
func TestToolsInOtherLanguages(t *testing.T) {
	state := t.TempDir()
	tools := filepath.Join(state, "tools")
	if err := os.Mkdir(tools, 0o700); err != nil {
		t.Fatal(err)
	}
	const page = "docs/tool-protocol.md"
	declare(t, tools, "sh", "local/shell:1", "/bin/sh", "-c", blocksOf(t, page, "sh")[0])
	declare(t, tools, "py", "local/python:1", "/usr/bin/python3", "-c", blocksOf(t, page, "python")[0])
	declare(t, tools, "js", "local/node:1", "/usr/bin/node", "-e", blocksOf(t, page, "js")[0])
	declare(t, tools, "finds", "local/shell:1", "/bin/sh", "-c", finds)
	for _, name := range []string{"python", "pdf"} {
		if err := os.CopyFS(filepath.Join(tools, name), onlyYAML{os.DirFS(filepath.Join(repo(t), "examples/tools", name))}); err != nil {
			t.Fatal(err)
		}
	}
	f := startFleet(t, state, "--images", filepath.Join(repo(t), "bin/images"))
	for name, test := range map[string]func(*testing.T, *fleet){
		"the page's tools": thePagesTools, "what a tool finds": whatAToolFinds,
		"python": pythonDrawsAndRaises, "pdf": pdfIsRead,
	} {
		t.Run(name, func(t *testing.T) {
			of := *f
			of.t = t
			test(t, &of)
		})
	}
	f.stop()
}

// declare writes the file of a tool.
func declare(t *testing.T, dir, name, image string, command ...string) {
	t.Helper()
	raw, err := json.Marshal(object{
		"apiVersion": "toolfleet/v1", "kind": "Tool", "name": name, "description": name,
		"image": image, "command": command, "parameters": object{"type": "object"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".tool.yaml"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func thePagesTools(t *testing.T, f *fleet) {
	names := object{"names": []string{"Ada", "Grace"}}
	for _, tt := range []struct {
		tool      string
		arguments any
		isError   bool
		says      string
	}{
		{"sh", object{"a": 1}, false, "The arguments have 7 bytes."},
		{"sh", object{}, true, "The tool exited with code 1. It said:\nthere is nothing to count"},
		{"py", names, false, "Hello, Ada!\nHello, Grace!\n"},
		{"js", names, false, "Hello, Ada!\nHello, Grace!\n"},
	} {
		a := f.call(tt.tool, tt.arguments)
		if a.text() != tt.says || a.Result.IsError != tt.isError {
			t.Errorf("%s says %q, an error: %v, %+v", tt.tool, a.text(), a.Result.IsError, a.Result.Error)
		}
	}
}

// finds tells what a tool finds around it.
const finds = `
id -u; id -g; pwd
echo $HOME $TMPDIR $TOOLFLEET_FD $TOOLFLEET_TOOL $TOOLFLEET_CALL_ID $GOMAXPROCS
ulimit -Sn; ulimit -Hn
for d in $HOME $TMPDIR /workspace; do touch $d/x && ls $d; done
touch /x /bin/x 2>/dev/null || echo read-only`

func whatAToolFinds(t *testing.T, f *fleet) {
	a := f.call("finds", object{})
	want := fmt.Sprintf("65532\n65532\n/workspace\n/home/tool /tmp 3 finds %s 1\n1024\n4096\nx\nx\nout\nx\nread-only\n", a.ToolCallID)
	if got := a.text(); got != want {
		t.Errorf("a tool finds %q, want %q", got, want)
	}
}

// A script that prints, draws and raises: all three are in its result.
func pythonDrawsAndRaises(t *testing.T, f *fleet) {
	a := f.call("python", object{"code": `from PIL import Image, ImageDraw
print("drawing")
i = Image.new("RGB", (64, 32), "white")
ImageDraw.Draw(i).ellipse((8, 8, 56, 24), fill="teal")
i.save("/workspace/out/dot.png")
raise ValueError("no more colours")
`})
	if a.kind() != call.KindToolError || len(a.Result.Content) != 3 {
		t.Fatalf("kind %q, %d parts: %s", a.kind(), len(a.Result.Content), a.text())
	}
	if got := a.Result.Content[0]; got.Type != agui.PartText || got.Text != "drawing\n" {
		t.Errorf("what it printed is %+v", got)
	}
	const traceback = `Traceback (most recent call last):
  File "script.py", line 6, in <module>
    raise ValueError("no more colours")
ValueError: no more colours`
	if got := a.Result.Content[1].Text; !strings.HasSuffix(got, traceback) {
		t.Errorf("the traceback is %q", got)
	}
	drawn := a.Result.Content[2]
	if drawn.Type != agui.PartImage || drawn.Source.MimeType != "image/png" || !strings.Contains(string(drawn.Metadata), "dot.png") {
		t.Fatalf("what it drew is %+v", drawn)
	}
	data, err := base64.StdEncoding.DecodeString(drawn.Source.Value)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil || picture.Bounds().Dx() != 64 {
		t.Errorf("the picture: %v", err)
	}
	// What a script leaves behind is gone with its call.
	if a := f.call("python", object{"code": "import os\nprint(os.listdir('/workspace/out'), __name__)"}); a.text() != "[] __main__\n" {
		t.Errorf("the next call finds %q", a.text())
	}
}

func pdfIsRead(t *testing.T, f *fleet) {
	letter, err := os.ReadFile(filepath.Join(repo(t), "examples/tools/pdf/letter.pdf"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(content []byte) answer {
		code, raw := f.do("POST", "/v1/calls", object{"tool": "pdf", "arguments": object{}, "files": []object{
			{"name": "letter.pdf", "data": base64.StdEncoding.EncodeToString(content)},
		}})
		if code != http.StatusOK {
			t.Fatalf("HTTP %d: %s", code, raw)
		}
		return f.read(raw)
	}
	if a := ask(letter); a.text() != "A letter\nToolfleet runs the tools that agents call,\nwithout trusting them.\n\n" {
		t.Errorf("it reads %q", a.text())
	}
	if a := ask(letter[:100]); a.kind() != call.KindToolError || !strings.Contains(a.text(), "letter.pdf cannot be read") {
		t.Errorf("of half a document it says %q", a.text())
	}
	if a := f.call("pdf", object{}); a.text() != "no document was handed in: attach a PDF to the call" {
		t.Errorf("without a document it says %q", a.text())
	}
}
