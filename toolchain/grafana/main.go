// Command grafana reads dashboards as strictly as Grafana's own schema allows, in
// the types that Grafana's authors make from it: a field that is misspelt, of the
// wrong type, or of another kind of panel is a fault, where Grafana itself would
// show a panel without it and say nothing. It knows the kinds of panels that our
// dashboards have, and Prometheus as their source; for another kind, add it to
// register.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	panels := register()
	faults := 0
	for _, name := range os.Args[1:] {
		if err := check(name, panels); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			faults++
		}
	}
	if faults > 0 || len(os.Args) < 2 {
		os.Exit(1)
	}
}

// register tells the schema what panels there are, and returns their names. The
// schema takes the options of a panel that it does not know unseen.
func register() map[string]bool {
	known := map[string]bool{"row": true}
	for _, p := range []variants.PanelcfgConfig{heatmap.VariantConfig(), stat.VariantConfig(), table.VariantConfig(), timeseries.VariantConfig()} {
		cog.NewRuntime().RegisterPanelcfgVariant(p)
		known[p.Identifier] = true
	}
	cog.NewRuntime().RegisterDataqueryVariant(prometheus.VariantConfig())
	return known
}

func check(name string, panels map[string]bool) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var types struct {
		Panels []struct{ Title, Type string }
	}
	if err := json.Unmarshal(raw, &types); err != nil {
		return err
	}
	for _, p := range types.Panels {
		if !panels[p.Type] {
			return fmt.Errorf("panel %q is of the kind %q, which toolchain/grafana does not check; add it there", p.Title, p.Type)
		}
	}
	var d dashboard.Dashboard
	return errors.Join(some(d.UnmarshalJSONStrict(raw)), some(d.Validate()))
}

// some is err, or nil for the list without errors that the schema's unions return.
func some(err error) error {
	if list := cog.BuildErrors(nil); errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}
