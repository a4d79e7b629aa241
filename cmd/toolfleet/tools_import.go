package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/worker/mcp"
)

// ToolsImportCmd writes the tool files of an MCP server. The server runs in a
// sandbox like the one that its calls will have, with the limits that its files
// will say, so that what cannot run is seen here.
type ToolsImportCmd struct {
	Command    []string          `arg:"" help:"Command that starts the server, after --; no shell sees it."`
	Image      string            `required:"" help:"Image that holds the server, as tool files write it."`
	NamePrefix string            `help:"Text before each tool's name, to tell the tools of two servers apart."`
	Env        map[string]string `help:"Environment variable for the server, here and in the files; may be repeated. Not for secrets." placeholder:"NAME=VALUE" mapsep:"none"`
	Out        string            `short:"o" help:"Directory for the files; it is made." default:"." type:"path"`
	Force      bool              `help:"Replace files that are there."`
	Timeout    time.Duration     `help:"How long to start and to list may take." default:"1m"`
	Containerd string            `help:"Address of the containerd to run it in; default: the one of the fleet on --state." env:"TOOLFLEET_CONTAINERD"`
	State      string            `help:"State directory of the fleet." default:"/var/lib/toolfleet" env:"TOOLFLEET_STATE"`
	Programs   string            `help:"Directory with agent, containerd, its shim and runc; default: beside this program." env:"TOOLFLEET_PROGRAMS"`
}

// listLimit bounds what a server may write while it lists its tools, in bytes.
const listLimit = 4 << 20

// Run writes a file for each tool that the fleet can have, and says of the others
// why not.
func (c *ToolsImportCmd) Run(ctx context.Context, term *terminal) error {
	ctx, stop := part.Signals(ctx, func() { os.Exit(exitFailed) })
	defer stop()
	base := catalog.Spec{Image: c.Image, Command: c.Command, Env: c.Env, Warm: catalog.Warm{Max: 4}}
	tools, err := c.list(ctx, base)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	written := map[string]string{} // which tool of the server has a name
	for _, t := range tools {
		spec, notes, err := t.Spec(base, c.NamePrefix)
		if err == nil && written[spec.Name] != "" {
			err = fmt.Errorf("%s has the name %s already", written[spec.Name], spec.Name)
		}
		if err == nil {
			err = c.write(&spec)
		}
		if err != nil {
			fmt.Fprintf(term.err, "left out: %s: %s\n", oneLine(t.Name), oneLine(err.Error()))
			continue
		}
		written[spec.Name] = oneLine(t.Name)
		fmt.Fprintln(term.out, c.file(&spec))
		for _, note := range notes {
			fmt.Fprintf(term.err, "note: %s is %s here: %s\n", oneLine(t.Name), spec.Name, oneLine(note))
		}
	}
	if len(written) == 0 {
		return fmt.Errorf("none of the server's %s could be imported", plural(len(tools), "tool"))
	}
	fmt.Fprintf(term.err, "%s of %d; what they say of themselves is the server's word: read the files, their annotations first\n", plural(len(written), "tool"), len(tools))
	return nil
}

func (c *ToolsImportCmd) file(s *catalog.Spec) string {
	return filepath.Join(c.Out, s.Name+".tool.yaml")
}

// write writes a file that tools check accepts.
func (c *ToolsImportCmd) write(s *catalog.Spec) error {
	text, err := catalog.YAML(s)
	if err != nil {
		return err
	}
	if _, err := catalog.Parse(text); err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if c.Force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(c.file(s), flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; --force replaces it", c.file(s))
	} else if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// list runs the server once and asks it.
func (c *ToolsImportCmd) list(ctx context.Context, base catalog.Spec) (tools []mcp.Tool, err error) {
	rt, err := c.runtime()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	base.SetDefaults()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	sb, err := sandbox.Open(ctx, rt, "import-"+strings.ToLower(rand.Text()), base.Sandbox(""))
	switch {
	case errors.Is(err, sandbox.ErrUnavailable):
		return nil, fmt.Errorf("%w: %w", client.ErrUnreachable, err)
	case err != nil:
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, sb.Close(ctx))
	}()
	p := sandbox.Process{Argv: base.Command, OutputLimit: listLimit}
	for name, value := range base.Env {
		p.Env = append(p.Env, name+"="+value)
	}
	return mcp.List(ctx, sb.Run, p)
}

// runtime reaches the containerd.
func (c *ToolsImportCmd) runtime() (*containerd.Runtime, error) {
	programs, err := part.FindPrograms(c.Programs)
	if err != nil {
		return nil, err
	}
	cfg := containerd.Config{
		Address: c.Containerd, Owner: "import-" + strings.ToLower(rand.Text()[:12]),
		AgentPath: programs.Agent, Expiry: 2 * c.Timeout,
	}
	if cfg.Address == "" {
		cfg.Address = containerd.DaemonAddress(c.State)
		if cfg.BinDir, err = programs.Containerd(); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(cfg.Address); err != nil {
		return nil, fmt.Errorf("%w: no containerd listens at %s; start a fleet, or name its --state or --containerd", client.ErrUnreachable, cfg.Address)
	}
	return containerd.New(cfg)
}
