# The targets of Berth: `make build`, `make check`, `make test`, `make demo`. All outputs of builds are in bin/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

GO    ?= go
TOOL   = $(GO) tool -modfile=tools/go.mod
BIN   ?= bin

# The stamp follows from the commit alone, so that a commit gives the same bytes on any machine and in any folder.
# Outside of a git checkout the toolchain's build information is used.
VERSION     ?= $(shell cat VERSION)
COMMIT      ?= $(shell git rev-parse HEAD 2>/dev/null)
COMMIT_DATE ?= $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
STAMP        = github.com/berthd/berth/internal/version
LDFLAGS      = -s -w -buildid= \
	-X $(STAMP).version=$(VERSION) -X $(STAMP).commit=$(COMMIT) -X $(STAMP).commitDate=$(COMMIT_DATE)
# Build, checks and tests have the same flags, so that go compiles each package once.
export GOFLAGS     := $(shell scripts/flags)
export CGO_ENABLED := 0
# The cache of golangci-lint is in the compiler's cache, so that both are kept together.
export GOLANGCI_LINT_CACHE ?= $(shell $(GO) env GOCACHE)/golangci-lint

# The Go files of this tree, for gofumpt, which would also format hidden folders and test data.
SOURCES = scripts/files go

.PHONY: help build release changelog demo demo-check check format generate test prove bench microbench reproducible \
	install-parts clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

build: ## Build bin/berth: one static, reproducible binary.
	GO="$(GO)" scripts/build $(BIN)/berth "$(LDFLAGS)"

release: ## Build all that a release publishes, for amd64 and arm64, in bin/release (VERSION=…).
	scripts/release "$(VERSION)"

changelog: ## Move the fragments of changes into CHANGELOG.md, as the release VERSION=….
	$(GO) run ./packaging/changelog -version "$(VERSION)"

demo: ## Install what is missing, start Berth, deploy the examples, serve until Ctrl-C (DEV: flags for berth dev).
	$(GO) run ./examples/demo -- $(DEV)

demo-check: ## Run the demo, verify each step, and remove everything again.
	$(GO) run ./examples/demo -check -- $(DEV)

check: ## Check format, architecture, lint (with vet), tidy modules, generated files and reproducibility.
	@echo "check: format"
	@out="$$($(SOURCES) | xargs -r -d '\n' $(TOOL) gofumpt -l)"; \
		if [[ -n "$$out" ]]; then echo "not formatted (make format):"; echo "$$out"; exit 1; fi
	@echo "check: architecture"
	@$(GO) test -count=1 ./internal/archtest
	@echo "check: lint"
	@$(TOOL) golangci-lint run ./...
	@echo "check: modules"
	@$(GO) mod tidy -diff
	@cd examples/client && $(GO) mod tidy -diff
	@cd examples/schedulers/binpack && $(GO) mod tidy -diff
	@echo "check: generated files"
	@scripts/check-generated
	@echo "check: the same bytes from two folders"
	@scripts/check-reproducible

format: ## Format all Go files.
	@$(SOURCES) | xargs -r -d '\n' $(TOOL) gofumpt -w

generate: ## Write the generated files again.
	$(GO) generate ./...

test: ## Run every test that this machine can run; as root install missing packages first.
	scripts/test

PROOFS = crash,store,sim,day,year,replay,search,proof,load,units,e2e,race,systemd,unified
PROOFS := $(PROOFS),fleet,discovery,consul,demo,contended,release,figures

prove: ## Run the long proofs (PROVE=crash,store,… selects; scripts/prove lists names and sizes, such as KILLS=200).
	PROVE="$(or $(PROVE),$(PROOFS))" ROUNDS=$(or $(ROUNDS),20) KILLS=$(or $(KILLS),100) \
		SERVICES=$(or $(SERVICES),80) BATCH=$(or $(BATCH),300) SEEDS=$(or $(SEEDS),10000) \
		SEARCH=$(or $(SEARCH),10000) RUNS=$(or $(RUNS),200) LOSSES=$(or $(LOSSES),20) \
		LENGTH=$(or $(LENGTH),1h) CHECKS=$(or $(CHECKS),10000) scripts/prove

bench: build ## Measure the performance of Berth, one table for each subject (scripts/bench lists the names for WHAT).
	scripts/bench $(WHAT)

microbench: ## Run Go benchmarks, ready for benchstat: make microbench PKG=./internal/store/etcd COUNT=10
	$(GO) test -run='^$$' -bench=. -benchmem -count=$(or $(COUNT),1) $(or $(PKG),./...)

reproducible: ## Build twice in different folders and compare the bytes.
	scripts/check-reproducible

install-parts: ## Install the system packages that tests and demo need (root).
	scripts/install-parts

clean: ## Remove the outputs of builds.
	rm -rf $(BIN)
