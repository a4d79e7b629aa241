package chaos

import (
	"fmt"
	"os"
	"path/filepath"
)

// toolbox is the tools that calls are made of. They are one program: a shell,
// so that a call says itself what it does.
var toolbox = []struct {
	name       string
	isolation  string
	idempotent bool
	warm       int
}{
	{"again-cell", "cell", true, 3},
	{"once-cell", "cell", false, 3},
	{"again-container", "container", true, 1},
	{"once-container", "container", false, 1},
}

// nobodys is a tool of a class that has no workers, so its calls expire.
const nobodys = "nobodys"

// toolFile declares one tool. The limit of memory sets those apart that would
// share warm sandboxes. Calls may wait for as long as the run lasts: no fault is
// to be mistaken for a queue that is too long.
const toolFile = `apiVersion: toolfleet/v1
kind: Tool
name: %s
type: function
description: A tool that notes what it does.
image: local/shell:1
pull: never
command: [/tool]
parameters: {type: object, required: [script], properties: {script: {type: string}}, additionalProperties: false}
annotations: {idempotent: %t}
isolation: %s
class: %s
queueTimeout: %s
limits: {timeout: 3m, memory: %dMi, pids: 32, disk: 4Mi, output: 16Ki}
warm: {min: %d, max: %d}
`

// linkImage makes dir hold the one image that the tools are, of those in from: a
// worker that comes back imports all it is given, and reads them for that.
func linkImage(from, dir string) error {
	from, err := filepath.Abs(filepath.Join(from, "shell.tar"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(from); err != nil {
		return fmt.Errorf("chaos: no image of the tools: %w; run make tool-images", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Symlink(from, filepath.Join(dir, "shell.tar"))
}

// writeTools writes the tools' files.
func writeTools(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	write := func(name, text string) error {
		return os.WriteFile(filepath.Join(dir, name+".tool.yaml"), []byte(text), 0o600)
	}
	for i, t := range toolbox {
		text := fmt.Sprintf(toolFile, t.name, t.idempotent, t.isolation, "default", "1h", 64+i, t.warm, t.warm)
		if err := write(t.name, text); err != nil {
			return err
		}
	}
	return write(nobodys, fmt.Sprintf(toolFile, nobodys, false, "container", "nobody", "4s", 64, 0, 0))
}
