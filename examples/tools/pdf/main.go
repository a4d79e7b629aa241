// Command pdf reads the text of PDF documents that come with a call.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/tool"
)

type in struct {
	First  int  `json:"first,omitempty" jsonschema:"the first page to read; 1 by default"`
	Last   int  `json:"last,omitempty" jsonschema:"the last page to read; that of the document by default"`
	Layout bool `json:"layout,omitempty" jsonschema:"keep columns and tables as they stand on the page"`
}

// inbox is where the files of a call are.
const inbox = "/workspace/in"

func main() {
	tool.Main(tool.DefineParallel("pdf", "Reads the text of the PDF documents that are handed in with the call.", read,
		tool.UseWhen("Use it when a person has attached a PDF."),
		tool.Annotate(tool.Annotations{ReadOnly: true})))
}

func read(ctx context.Context, c *tool.Call, in in) (tool.Result, error) {
	files, err := filepath.Glob(filepath.Join(inbox, "*"))
	if err != nil {
		return tool.Result{}, err
	}
	if len(files) == 0 {
		return tool.Result{}, errors.New("no document was handed in: attach a PDF to the call")
	}
	var r tool.Result
	for i, file := range files {
		c.Update(tool.Update{Current: float64(i), Total: float64(len(files)), Message: "reading " + filepath.Base(file)})
		text, err := textOf(ctx, file, in)
		if err != nil {
			return r, err
		}
		if len(files) > 1 {
			text = filepath.Base(file) + ":\n\n" + text
		}
		r.Content = append(r.Content, agui.Text(text))
	}
	return r, nil
}

// textOf runs Debian's pdftotext. The file's path is absolute, so that no name
// is taken for an option.
func textOf(ctx context.Context, file string, in in) (string, error) {
	args := []string{"-enc", "UTF-8", "-nopgbrk"}
	if in.First > 0 {
		args = append(args, "-f", strconv.Itoa(in.First))
	}
	if in.Last > 0 {
		args = append(args, "-l", strconv.Itoa(in.Last))
	}
	if in.Layout {
		args = append(args, "-layout")
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/pdftotext", append(args, file, "-")...)
	var text, why bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &why
	err := cmd.Run()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", err
	case err != nil:
		return "", fmt.Errorf("%s cannot be read: %s", filepath.Base(file), strings.TrimSpace(why.String()))
	case strings.TrimSpace(text.String()) == "":
		return "", fmt.Errorf("%s has no text: its pages may be pictures", filepath.Base(file))
	}
	return text.String(), nil
}
