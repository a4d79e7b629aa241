// Command agent is the first process of every sandbox: it starts the tool,
// carries its streams and tells how it ended. Package sandbox/agent says how;
// people have no reason to run it.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/toolfleet/toolfleet/sandbox/agent"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var cfg agent.Config
	flag.StringVar(&cfg.Workspace, "workspace", wire.DirWorkspace, "the tool's working `directory`")
	flag.StringVar(&cfg.Home, "home", wire.DirHome, "the tool's home `directory`")
	flag.StringVar(&cfg.Tmp, "tmp", wire.DirTmp, "the tool's `directory` for temporary files")
	flag.BoolVar(&cfg.Cells, "cells", false, "serve many calls, each in a cell")
	flag.BoolVar(&cfg.Secrets, "secrets", false, "a tmpfs for secret files is at "+wire.DirSecrets)
	flag.Parse()
	in, out, err := agent.Stdio()
	if err != nil {
		return err
	}
	cfg.In, cfg.Out = in, out
	return agent.Run(cfg)
}
