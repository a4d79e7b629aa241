// Module grafana checks dashboards against Grafana's own schema. It is a module of
// its own so that the schema, which is large, reaches nobody else.
module github.com/toolfleet/toolfleet/toolchain/grafana

go 1.26.6

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
