# Two commands matter: `make demo` and `make test`. Each sets the machine up by
# itself, on a fresh Debian or Ubuntu with Go and root. `make` lists the rest.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

# PKG narrows test, lint and fuzz; RUN picks tests by name.
PKG ?= ./...
RUN ?= .
FUZZTIME ?= 20s

tools := .toolchain/bin
BIN   ?= bin
# A checkout that git refuses to read (another owner, no git) is built without
# its revision.
vcs := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## build everything that running needs; nothing to do the second time
	@toolchain/check.sh
	@toolchain/packages.sh
	@toolchain/build.sh containerd containerd-shim-runc-v2 runc
	@$(MAKE) build
	@echo "setup: ready"

.PHONY: build
build: ## build bin/{dispatcher,worker,toolfleet,agent}
	@mkdir -p $(BIN)
	@[[ -x $(BIN)/toolfleet ]] || echo "setup: building bin/ (a minute or two the first time)"
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o $(BIN)/ ./cmd/agent
	@CGO_ENABLED=0 go build -trimpath -buildvcs=$(vcs) -o $(BIN)/ ./cmd/dispatcher ./cmd/worker ./cmd/toolfleet

.PHONY: tool-images
tool-images: setup ## build the example tools' images into bin/images
	@examples/images.sh >&2

# REGISTRY and TAG name the fleet's images; the chart expects these.
REGISTRY ?= toolfleet.local
TAG      ?= $(shell awk '$$1 == "appVersion:" { print $$2 }' charts/toolfleet/Chart.yaml)

.PHONY: images
images: setup ## build the images of dispatcher, worker and command line into bin/fleet
	@go run ./deploy/images --registry=$(REGISTRY) --tag=$(TAG)

.PHONY: images-check
images-check: setup ## build them from two places and compare their digests
	@deploy/images/check.sh

.PHONY: demo
demo: setup tool-images ## start a fleet, call every example, stop it, see that nothing is left
	@examples/demo.sh

.PHONY: conformance
conformance: setup tool-images ## the official AG-UI clients against a running fleet, through its doors
	@dispatch/aguidoor/conformance/run.sh

.PHONY: run
run: setup tool-images ## the whole fleet in one process, with the example tools; stop it with Ctrl-C
	@bin/toolfleet up --tools examples/tools --images bin/images

.PHONY: test
test: setup tool-images ## every test, with the race detector and real containers
	@toolchain/build.sh gotestsum runsc
	@toolchain/test.sh -race -count=1 -timeout=20m -run '$(RUN)' $(PKG)

# The flood tests measure the memory of their process, in which three servers are.
cluster_skip := TestPain35FloodsAreNotHeld
.PHONY: test-cluster
test-cluster: setup tool-images ## the tests of all that speaks to NATS, on three servers with three replicas of each stream
	@TOOLFLEET_TEST_NATS=cluster go test -count=1 -timeout=6m -run '$(RUN)' -skip '$(cluster_skip)' \
		./queue ./results ./blob ./catalog ./dispatch ./keeper ./worker ./cmd/internal/part

.PHONY: escape
escape: setup ## let a hostile tool loose in real sandboxes: each runtime that is here, each isolation
	@toolchain/build.sh runsc >&2
	@bin/toolfleet image build sandbox/sandboxtest/escape --tag local/escape:1 --output bin/escape.tar >&2
	@bin/toolfleet escape

.PHONY: egress
egress: setup ## let a hostile tool try to reach what its network does not allow: each runtime, each isolation
	@toolchain/packages.sh iproute2 >&2
	@toolchain/build.sh runsc >&2
	@bin/toolfleet image build sandbox/sandboxtest/egress --tag local/egress:1 --output bin/egress.tar >&2
	@bin/toolfleet egress

.PHONY: test-cgroup2
test-cgroup2: setup tool-images ## the sandbox's tests on cgroup v2, in a kernel of their own
	@toolchain/cgroup2/run.sh

.PHONY: bench
bench: setup tool-images ## measure calls against bare containers, as `name value` lines
	@toolchain/packages.sh bubblewrap >&2
	@toolchain/build.sh runsc >&2
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(BIN)/ ./cmd/internal/bench/fetch
	@bin/toolfleet bench

.PHONY: bench-bus
bench-bus: build ## measure what a call costs beside its sandbox, as `name value` lines; needs no containers
	@bin/toolfleet bench-bus

.PHONY: simulate
simulate: ## what calls wait and what idle slots cost under settings of the autoscaler, on paper
	@go run ./cmd/simulate

# SEED and CALLS say what `make chaos` does.
SEED  ?= 1
CALLS ?= 2000

.PHONY: chaos
chaos: setup tool-images ## a fleet under faults: CALLS calls (2000), faults drawn from SEED (1)
	@mkdir -p bin/chaos
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags=chaos,failpoint -o bin/chaos/ ./cmd/dispatcher ./cmd/worker ./cmd/toolfleet ./cmd/chaos
	@bin/chaos/chaos --seed=$(SEED) --calls=$(CALLS)

# ROLLS says how often `make rolling` restarts everything: an upgrade, its
# rollback, and so on.
ROLLS ?= 2

.PHONY: rolling
rolling: setup tool-images ## restart every process of a fleet in turn under load: at least CALLS calls (2000), ROLLS rolls (2)
	@mkdir -p bin/rolling/next
	@for build in one two; do \
		CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags=chaos -ldflags=-X=github.com/toolfleet/toolfleet/cmd/internal/part.stamped=$$build \
			-o bin/rolling/$$([[ $$build == one ]] || echo next/) ./cmd/dispatcher ./cmd/worker ./cmd/toolfleet; \
	done
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/rolling/ ./cmd/chaos
	@bin/rolling/chaos --seed=$(SEED) --calls=$(CALLS) --rolls=$(ROLLS) --next=bin/rolling/next

.PHONY: ops-check
ops-check: setup ## the Helm chart against strict schemas of Kubernetes and what it is used with; rules and alerts by promtool; dashboards against a live scrape
	@charts/toolfleet/check.sh
	@deploy/prometheus/check.sh
	@deploy/grafana/check.sh

.PHONY: e2e-k8s
e2e-k8s: setup tool-images images ## the Helm chart on a real Kubernetes node, which is built the first time (20 minutes of processor time)
	@toolchain/packages.sh iproute2 iptables nftables conntrack >&2
	@toolchain/build.sh containerd-cri ctr >&2
	@TOOLFLEET_E2E_KUBERNETES=$$(toolchain/kubernetes/build.sh) TOOLFLEET_E2E_SCHEMAS=$$(toolchain/kubernetes/schemas.sh) \
		go test -tags=e2e -count=1 -timeout=15m -v ./cmd/internal/e2e

.PHONY: fuzz
fuzz: ## run every fuzz target of PKG for FUZZTIME (20s)
	@for dir in $$(go list -f '{{.Dir}}' $(PKG)); do \
		for target in $$(grep -rhoP --include='*_test.go' '^func \KFuzz\w+' "$$dir"/*.go); do \
			echo "fuzz: $$dir $$target"; \
			go test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) "$$dir"; \
		done; \
	done

.PHONY: lint
lint: ## golangci-lint, as .golangci.yml says
	@toolchain/build.sh golangci-lint
	@$(tools)/golangci-lint run $(PKG)

.PHONY: fmt
fmt: ## format the Go code
	@toolchain/build.sh golangci-lint
	@$(tools)/golangci-lint fmt

.PHONY: fmt-check
fmt-check: ## fail when code is not formatted
	@toolchain/build.sh golangci-lint
	@$(tools)/golangci-lint fmt --diff

.PHONY: vet
vet: ## go vet
	@go vet $(PKG)

.PHONY: fences
fences: ## floors, fences and the other rules of the house
	@go test -count=1 ./internal/house

.PHONY: clean
clean: ## remove what was built, but not what it was built from
	@rm -rf bin dist .toolchain
