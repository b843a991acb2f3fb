# Everything a person or CI runs. `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := bash

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 60s
BENCH ?= .

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/relayd and bin/relay, static
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/relayd ./cmd/relay

.PHONY: run
run: build ## build and start the server in the foreground, data in .relay
	@exec bin/relayd serve --data-dir .relay

.PHONY: demo
demo: build ## the whole loop by itself: server, echo target, ssh -R, one webhook, one replay
	@exec bin/relayd demo

.PHONY: setup
setup: ## install what the tests drive, or name it
	@scripts/setup

.PHONY: test
test: setup ## every test, with the race detector, on both databases
	@failed=0; \
	go test -race -shuffle=on -count=1 -timeout 30m ./... || failed=1; \
	(cd conformance && go test -race -count=1 -timeout 30m ./...) || failed=1; \
	exit $$failed

.PHONY: faults
faults: setup ## faults in full size, one line of figures each; make test has them short
	@set -o pipefail; cd conformance && RELAY_FAULTS=full go test -count=1 -timeout 30m -run Fault -v . | \
		sed -nuE -e 's/^ +[a-z_]+_test\.go:[0-9]+: figure: //p' -e '/^ *(--- FAIL|[a-z_]+_test\.go:[0-9]+: )|^(FAIL|ok|panic)/{/: figure: /!p}'

.PHONY: lint
lint: ## every check that runs nothing
	@scripts/lint

.PHONY: generate
generate: ## templ output and docs/config.md
	go tool templ generate
	go run ./cmd/relayd config --markdown > docs/config.md

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (60s) each
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## benchmarks: head parse, ingress, exchange, durable commit on both stores
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./wire ./server ./delivery ./store

.PHONY: axe
axe: ## accessibility of every page, by axe-core from npm; not part of test
	@scripts/axe

.PHONY: screenshots
screenshots: ## the README's pictures of the dashboard, from a real run
	@scripts/screenshots
