// Package bench measures a whole fleet beside its bare rivals, in one run on one
// machine: what a machine does today says little, what two things do beside
// each other says a lot. It prints `name value` lines.
//
// The rivals are containerd as anybody gets it ([containerd.Bare]) and
// bubblewrap, which makes namespaces and nothing else.
//
// Every figure is the median of rounds taken in turn, so that a slow minute of
// the machine falls on all of them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// Config says what to measure with.
type Config struct {
	// Program is the toolfleet program; Programs is handed to it.
	Program, Programs string
	// BinDir holds containerd, its shim, runc and runsc; Agent is the agent.
	BinDir, Agent string
	// Fetch is the program cmd/internal/bench/fetch, linked statically.
	Fetch string
	// Images is a directory with the OCI archives of the examples.
	Images string
	// Dir is a directory on a disk; everything is made below it.
	Dir string
	// Rounds is how often each figure is taken, Calls how many calls or
	// containers each time, Mixed how many calls leave nothing behind.
	Rounds, Calls, Mixed int
	// Out takes the figures, Err what happens meanwhile.
	Out, Err io.Writer
}

// lines are what is printed: figures, and what two of them say of each other.
var lines = []struct{ name, figure, by string }{
	{"bare_p50_ms", "bare", ""},
	{"bare_rate", "bare_rate", ""},
	{"bwrap_p50_ms", "bwrap", ""},
	{"warm_container_p50_ms", "warm", ""},
	{"cold_container_p50_ms", "cold", ""},
	{"ratio_warm_container_vs_bare_p50", "warm", "bare"},
	{"ratio_cold_container_vs_bare_p50", "cold", "bare"},
	{"container_rate", "cold_rate", ""},
	{"ratio_container_rate_vs_bare", "cold_rate", "bare_rate"},
	{"cell_p50_ms", "cell", ""},
	{"cell_rate", "cell_rate", ""},
	{"ratio_cell_rate_vs_bare", "cell_rate", "bare_rate"},
	{"ratio_cell_p50_vs_bwrap", "cell", "bwrap"},
	{"go_cell_rate", "go_cell_rate", ""},
	{"gvisor_container_rate", "gvisor_rate", ""},
	{"gvisor_cell_rate", "gvisor_cell_rate", ""},
	{"ratio_gvisor_cell_vs_container", "gvisor_cell_rate", "gvisor_rate"},
	{"cancel_to_empty_p99_ms", "cancel", ""},
	{"flood_worker_growth_mib", "flood", ""},
	{"warm_sandbox_pss_mib", "pss", ""},
	{"bus_p50_ms", "bus", ""},
	{"egress_throughput_mib_s", "egress_throughput", ""},
	{"egress_bare_throughput_mib_s", "egress_bare_throughput", ""},
	{"ratio_egress_throughput_vs_bare", "egress_throughput", "egress_bare_throughput"},
	{"egress_added_latency_ms", "egress_added_latency", ""},
}

// Run measures and prints. It leaves nothing behind.
func Run(ctx context.Context, c Config) (err error) {
	b, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()

	taken := map[string][]float64{}
	for n := range c.Rounds + 1 {
		round, err := b.round(ctx, n)
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		if n == 0 {
			continue // caches and pools fill
		}
		fmt.Fprintf(c.Err, "bench: round %d of %d: %v\n", n, c.Rounds, round)
		for name, v := range round {
			taken[name] = append(taken[name], v...)
		}
	}
	figures := map[string]float64{}
	for name, v := range taken {
		figures[name] = quantile(v, 0.5)
	}
	figures["cancel"] = quantile(taken["cancel"], 0.99)
	for _, l := range lines {
		v := figures[l.figure]
		if l.by != "" {
			v /= figures[l.by]
		}
		fmt.Fprintf(c.Out, "%s %.3f\n", l.name, v)
	}
	left, err := b.leftovers(ctx)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if left[name] > 0 {
			fmt.Fprintf(c.Err, "bench: left: %d %s\n", left[name], name)
			total += left[name]
		}
	}
	fmt.Fprintf(c.Out, "leftovers %d\n", total)
	return nil
}

// bench is everything that is measured.
type bench struct {
	c     Config
	bare  *containerd.Bare
	bwrap *bubblewrap
	bus   *bus
	// network is what tools with a network are measured with.
	network *egressBench
	// Fleets by what they are measured with. The others are idle meanwhile.
	containers, cells, gvisor *fleet
	undo                      []func() error
}

// measured is the tool that is measured, in fleets and rivals alike: a small
// program, since what the tool itself takes is the same everywhere and says
// nothing about who runs it. A tool in Go takes 2 ms of processor time more for
// its own start; how many cells a second that leaves is go_cell_rate.
var measured = []string{"/bin/busybox", "wc", "-w"}

// measuredImage is the example whose image has it.
const measuredImage = "shell"

// warmSize is how many sandboxes a pool holds of each tool that has one: two
// processors can start two.
const warmSize = 2

func open(ctx context.Context, c Config) (b *bench, err error) {
	b = &bench{c: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	archive, err := os.Open(filepath.Join(c.Images, measuredImage+".tar"))
	if err != nil {
		return b, fmt.Errorf("no image of %s: %w; run make tool-images", measuredImage, err)
	}
	defer archive.Close()
	if b.bare, err = containerd.StartBare(ctx, c.BinDir, c.Dir, archive); err != nil {
		return b, err
	}
	b.undo = append(b.undo, b.bare.Stop)
	if b.bwrap, err = openBubblewrap(filepath.Join(c.Dir, "bwrap"), archive.Name()); err != nil {
		return b, err
	}
	for _, f := range []struct {
		into  **fleet
		name  string
		tools []declared
	}{
		{&b.containers, "containers", []declared{
			{"warm", measuredImage, "container", "runc", measured, warmSize},
			{"cold", measuredImage, "container", "runc", measured, 0},
		}},
		{&b.cells, "cells", []declared{
			{"cell", measuredImage, "cell", "runc", measured, 2 * warmSize},
			{"go-cell", "word-count", "cell", "runc", []string{"/tool"}, 2 * warmSize},
			{"shell", "shell", "container", "runc", []string{"/tool"}, warmSize},
		}},
		{&b.gvisor, "gvisor", []declared{
			{"gvisor", measuredImage, "container", "runsc", measured, 0},
			{"gvisor-cell", measuredImage, "cell", "runsc", measured, warmSize},
		}},
	} {
		if *f.into, err = startFleet(ctx, c, f.name, f.tools...); err != nil {
			return b, err
		}
		b.undo = append(b.undo, (*f.into).stop)
	}
	b.bus, err = openBus(ctx, busConfig{dir: filepath.Join(c.Dir, "bus"), slots: busSlots})
	if err != nil {
		return b, err
	}
	b.undo = append(b.undo, b.bus.close)
	if b.network, err = openEgress(ctx, c); err == nil {
		b.undo = append(b.undo, b.network.close)
	}
	return b, err
}

// close ends everything, the last first.
func (b *bench) close() error {
	var errs []error
	for _, undo := range slices.Backward(b.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}
