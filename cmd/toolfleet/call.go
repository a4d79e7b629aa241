package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// maxArguments bounds what is read as arguments. The fleet's own limit is far
// lower, and going over that is an error result, which this leaves room for.
const maxArguments = 16 << 20

// maxFiles is what a request has room for, in base64.
const maxFiles = 11 << 20

// FleetFlags say which fleet to talk to.
type FleetFlags struct {
	URL   string `help:"URL of the fleet." default:"http://127.0.0.1:8080" env:"TOOLFLEET_URL"`
	Token string `help:"Bearer token; better given in the environment, where other users do not see it." env:"TOOLFLEET_TOKEN"`
}

func (f FleetFlags) fleet() (*client.Fleet, error) {
	c, err := client.New(f.URL, f.Token)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// ViewFlags say how a call is shown.
type ViewFlags struct {
	Format    string `help:"text: progress, then the result; agui: the AG-UI run, an event a line; native: tool_execution events, one a line; json: the result alone." enum:"text,agui,native,json" default:"text"`
	OutputDir string `short:"o" help:"Save media of the result into this directory." type:"path"`
}

// CallCmd calls a tool.
type CallCmd struct {
	Name string `arg:"" help:"Name of the tool."`
	Args string `help:"Arguments: JSON, @FILE, or - for standard input." default:"{}" placeholder:"JSON|@FILE|-"`
	// A path may hold a comma, so it separates nothing.
	Files []string `name:"file" help:"A file that the tool finds in /workspace/in; may be repeated." type:"path" sep:"none" placeholder:"PATH"`

	Timeout  time.Duration `help:"How long the tool may run; the tool's own limit when absent."`
	Thread   string        `help:"Thread id; a new one when absent."`
	RunID    string        `name:"run" help:"Run id; a new one when absent."`
	ID       string        `name:"id" help:"Id of the call in its run; a new one when absent."`
	Priority string        `help:"interactive or batch." enum:"interactive,batch" default:"interactive"`

	ViewFlags
	FleetFlags
}

// Run makes the call and follows it. The first interrupt cancels the call and
// waits for its result; the second stops waiting for it.
func (c *CallCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	args, err := arguments(c.Args, term.in)
	if err != nil {
		return err
	}
	if c.Timeout < 0 {
		return usagef("--timeout must not be negative")
	}
	req := client.Request{
		Tool: c.Name, Arguments: args, Priority: c.Priority,
		ThreadID: orNew(c.Thread, "thread-"), RunID: orNew(c.RunID, "run-"), ToolCallID: orNew(c.ID, "call-"),
	}
	if req.Files, err = readFiles(c.Files); err != nil {
		return err
	}
	if c.Timeout > 0 {
		req.Timeout = c.Timeout.String()
	}

	view := newView(c.ViewFlags, term, fleet)
	following, keys := onInterrupt(ctx, fleet, term)
	err = fleet.Call(following, req, func(id string) {
		keys.know(id)
		view.id = id
	}, view.visit)
	keys.stop()
	keys.lost(err)
	return view.end(ctx, err)
}

// arguments reads the text of --args.
func arguments(spec string, in io.Reader) (string, error) {
	if name, ok := strings.CutPrefix(spec, "@"); ok {
		f, err := os.Open(name)
		if err != nil {
			return "", usageError{err}
		}
		defer f.Close()
		in = f
	} else if spec != "-" {
		return spec, nil
	}
	text, err := io.ReadAll(io.LimitReader(in, maxArguments+1))
	if err != nil {
		return "", fmt.Errorf("arguments: %w", err)
	}
	if len(text) > maxArguments {
		return "", usagef("the arguments are longer than %s", size(maxArguments))
	}
	return string(text), nil
}

// readFiles reads the files of --file.
func readFiles(paths []string) ([]client.File, error) {
	var files []client.File
	room := int64(maxFiles)
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, usageError{err}
		}
		data, err := io.ReadAll(io.LimitReader(f, room+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, usageError{err}
		}
		if room -= int64(len(data)); room < 0 {
			return nil, usagef("the files are longer than %s together; a larger one can be handed on as the URL of an earlier result's part, with the API", size(maxFiles))
		}
		files = append(files, client.File{Name: filepath.Base(path), Data: data})
	}
	return files, nil
}

// orNew is id, or a new one that begins with prefix.
func orNew(id, prefix string) string {
	if id != "" {
		return id
	}
	return prefix + strings.ToLower(rand.Text())
}
