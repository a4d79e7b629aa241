package main

import (
	"context"
	"fmt"
	"os"

	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/internal/natsd"
)

// NATSCmd is one NATS server in a process of its own, the one that `up` embeds.
type NATSCmd struct {
	Store      string `help:"Directory for JetStream's files." required:"" type:"path"`
	Listen     string `help:"Address for clients. There is no authentication, so anything but loopback gives the fleet away." default:"127.0.0.1:4222"`
	Name       string `help:"Name of this server, unique in its cluster." default:"toolfleet"`
	Cluster    int    `name:"cluster-port" help:"Port on loopback for the other servers of a cluster on this machine; 0 means that it stands alone." default:"0"`
	Peers      []int  `name:"peer-port" help:"That port of each server of the cluster, its own among them. May be repeated."`
	SyncAlways bool   `help:"Write every message through to the disk before it is acknowledged."`
	part.LogConfig
}

// Run serves until a signal.
func (c *NATSCmd) Run(ctx context.Context, term *terminal) error {
	host, port, err := hostPort(c.Listen)
	if err != nil {
		return err
	}
	cfg := natsd.Config{StoreDir: c.Store, Host: host, Port: port, SyncAlways: c.SyncAlways, Log: c.Logger(os.Stderr)}
	if c.Cluster != 0 {
		cfg.Cluster = &natsd.Cluster{Server: c.Name, Port: c.Cluster, Peers: c.Peers}
	}
	ctx, stop := part.Signals(ctx, func() { os.Exit(exitFailed) })
	defer stop()
	server, err := natsd.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer server.Shutdown()
	fmt.Fprintf(term.out, "ready nats=%s\n", server.ClientURL())
	<-ctx.Done()
	return nil
}
