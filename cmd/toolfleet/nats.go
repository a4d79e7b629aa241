package main

import (
	"context"
	"fmt"
	"os"

	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/internal/natsd"
)

// NATSCmd is one NATS server in a process of its own, the program that `up`
// embeds: to try a cluster where nats-server is not installed.
type NATSCmd struct {
	File string `arg:"" help:"Configuration as nats-server reads it, such as those in deploy/nats." type:"existingfile"`
	part.LogConfig
}

// Run serves until a signal.
func (c *NATSCmd) Run(ctx context.Context, term *terminal) error {
	ctx, stop := part.Signals(ctx, func() { os.Exit(exitFailed) })
	defer stop()
	server, err := natsd.Start(ctx, natsd.Config{File: c.File, Log: c.Logger(os.Stderr)})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	fmt.Fprintf(term.out, "ready nats=%s\n", server.ClientURL())
	<-ctx.Done()
	return nil
}
