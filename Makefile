# Everything a person or CI runs. `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := bash

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE    ?= $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
LDFLAGS := -s -w -X relay.version=$(VERSION) -X relay.commit=$(COMMIT) -X relay.date=$(DATE)
FUZZTIME ?= 60s
BENCH ?= .

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/relayd and bin/relay, static
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/relayd ./cmd/relay

.PHONY: dist
dist: ## what a release consists of, in dist/: archives, packages, checksums, SBOMs
	@scripts/dist

.PHONY: run
run: build ## build and start the server in the foreground, data in .relay
	@exec bin/relayd serve --data-dir .relay

.PHONY: demo
demo: build ## the whole loop by itself: server, echo target, ssh -R, one webhook, one replay
	@scripts/demo

.PHONY: setup
setup: ## install what the tests drive, or name it
	@scripts/setup

.PHONY: test
test: setup ## every test, on both databases: what CI runs, some minutes
	@scripts/test

.PHONY: test-all
test-all: setup ## and everything in full size: faults, races, model, fuzz, axe, coverage (hours)
	@scripts/test all

.PHONY: one
one: ## one test, wherever it is: make one RUN=TestName/subtest
	@scripts/one '$(RUN)'

.PHONY: faults
faults: setup ## faults in full size, one line of figures each; RUN=… for some of them
	@scripts/faults

.PHONY: versions
versions: setup ## the version before beside this one on one Postgres, a chain of earlier ones; FORMER=commit
	@scripts/versions

.PHONY: mutants
mutants: setup ## changes that the tests must notice; RUN=… for some of them, PASS=1 without a run before
	@go run -C tools ./mutants -run '$(RUN)' $(if $(PASS),-pass)

.PHONY: lint
lint: ## static checks: formatting, vet, staticcheck, dead code, generated files
	@scripts/lint

.PHONY: generate
generate: ## templ output, docs/config.md and docs/alias-settings.md
	go tool templ generate
	go run ./cmd/relayd config --markdown > docs/config.md
	go test ./record -count=1 -run '^TestSettingsPage$$' -update

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (60s) each
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## benchmarks: head parse, ingress, exchange, durable commit on both stores
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./wire ./server ./delivery ./store

.PHONY: bench-compare
bench-compare: build ## Relay beside nginx + sshd on this machine, as ratios; ARGS="-rounds 5 -json FILE -svg FILE"
	@RELAY_TEST_PROGRAMS=$(CURDIR)/bin go test -run '^$$' -bench '^BenchmarkCompare$$' -benchtime 1x -timeout 0 ./bench -args $(ARGS)

.PHONY: bench-growth
bench-growth: build ## Relay beside itself with idle tunnels, aliases and viewers; ARGS="-engine postgres"
	@RELAY_TEST_PROGRAMS=$(CURDIR)/bin go test -run '^$$' -bench '^BenchmarkGrowth$$' -benchtime 1x -timeout 0 ./bench -args $(ARGS)

.PHONY: axe
axe: ## accessibility of every page, by axe-core from npm; not part of test
	@scripts/axe

.PHONY: screenshots
screenshots: ## the pictures of the dashboard in README and docs, from a real run
	@scripts/screenshots
