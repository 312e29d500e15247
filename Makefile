# Copyright The Berth Authors.
# SPDX-License-Identifier: Apache-2.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TOOL    := go tool -modfile=hack/tools/go.mod
HELM    := go tool -modfile=hack/helm/go.mod helm
VALE    := go tool -modfile=hack/vale/go.mod vale --no-global --config=hack/vale/vale.ini
# The pages whose prose `make lint` checks. Decisions stay as they were written.
PROSE   := --glob='!docs/decisions/*' $(wildcard *.md) docs examples
# The modules of hack that have code, and the tools for use in them.
MODULES  := image kind conformance drivers plots
# Each leaves some of the configuration's exceptions unused, which is worth a warning in the root alone.
HACKTOOL := LOG_LEVEL=error go tool -modfile=../tools/go.mod
TESTSUM := $(TOOL) gotestsum --jsonfile bin/test.json --post-run-command hack/test-summary

# Test binaries that link Kubernetes take over a gigabyte each to link: more than two at once swap a small machine.
# `make lint` has vet's checks, so they are not made again for each test binary.
TEST_FLAGS ?= -p 2 -vet=off -timeout 80m
PKG        ?=
ARGS       ?=
IMAGE      ?= berth:$(VERSION)
FUZZTIME   ?= 20s

CRASH_POINTS ?= 10000

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what each target does.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/berth.
	go build -ldflags '-X main.version=$(VERSION)' -o bin/berth ./cmd/berth

.PHONY: image
image: ## Build Berth's container image (IMAGE=name:tag) as bin/berth-image.tar, for `docker load`.
	go run -C hack/image . -C ../.. -o $(CURDIR)/bin/berth-image.tar -name $(IMAGE) -version $(VERSION)

.PHONY: up
up: build ## Start a host and a space on this machine (ARGS="--space demo").
	bin/berth up $(ARGS)

.PHONY: test
test: ## Run every test (PKG=./kine for one package, TEST_FLAGS=-race for other flags).
	@mkdir -p bin
	@$(TESTSUM) --format pkgname $(if $(PKG),-- $(TEST_FLAGS) $(PKG),--raw-command -- hack/test $(TEST_FLAGS))

.PHONY: test-race
test-race: ## Run the tests that don't link the API server under the race detector.
	@mkdir -p bin
	@$(TESTSUM) --format pkgname --raw-command -- hack/test-race $(TEST_FLAGS)

.PHONY: e2e
e2e: ## Run the end-to-end tests that need real containers, on kind (E2E_FOCUS=, E2E_KEEP=1, E2E_HOST=embedded: docs/contributing/kind.md).
	@hack/e2e

.PHONY: conformance
conformance: ## Run upstream's conformance specs against a space, on kind (FOCUS=REGEXP, CONFORMANCE_KEEP=1: docs/contributing/conformance.md).
	@FOCUS='$(FOCUS)' hack/conformance/run

.PHONY: bench
bench: ## Measure Berth beside stock Kubernetes (BENCH_JSON=file to keep the figures, ARGS=-help).
	go run ./bench $(ARGS)

.PHONY: load
load: ## Use all spaces of the current cluster until interrupted, and print requests, failed, held, p99 (ARGS=-help).
	@go run ./bench/load $(ARGS)

.PHONY: bench-kind
bench-kind: ## Measure pods through Berth beside direct ones on kind, until they run (BENCH_JSON=, BENCH_KEEP=1: docs/contributing/benchmarks.md).
	@hack/bench-kind

.PHONY: plots
plots: ## Draw the README's plots (BENCH_JSON="files of bench and bench-kind", NOTE="where they were measured").
	go run -C hack/plots . -out $(CURDIR)/docs/images -note '$(NOTE)' $(abspath $(BENCH_JSON))

.PHONY: simulate
simulate: ## Simulate the placement of 100,000 spaces on 100 shards for three days, and draw it (ARGS=-help).
	@mkdir -p bin
	go run ./bench/simulate -json bin/simulation.json $(ARGS)
	go run -C hack/plots . -out $(CURDIR)/docs/images -simulation $(CURDIR)/bin/simulation.json

.PHONY: soak
soak: ## Create, use, sleep, wake and delete spaces for 10 minutes, and fail if something leaks (ARGS="-duration 1h").
	go run ./bench -soak $(ARGS)

.PHONY: fuzz
fuzz: ## Fuzz each fuzz target of all packages for FUZZTIME.
	@hack/fuzz $(FUZZTIME)

.PHONY: crash
crash: ## Kill the operator at each write, and the syncer at CRASH_POINTS writes, over all resources, and count what is lost, leaked and duplicated.
	BERTH_CRASH_POINTS=1 go test ./operator -run '^TestAnOperatorThatIsKilledAtAnyWriteResumes$$' -v -count=1 -timeout 20m
	BERTH_CRASH_POINTS=$(CRASH_POINTS) go test ./syncer -run '^TestCrashPoints$$' -v -count=1 -timeout 120m

.PHONY: lint
lint: check-style check-generated ## Check style, known vulnerabilities, and that generated files and go.mod are fresh.

.PHONY: check-style
check-style: ## Check what `make lint` does, except for generated files.
	$(TOOL) golangci-lint-kube-api-linter run
	for module in $(MODULES); do (cd hack/$$module && $(HACKTOOL) golangci-lint-kube-api-linter run -c ../../.golangci.yml) || exit 1; done
	go mod tidy -diff
	for module in tools vale helm plots image kind kind/kubernetes-1.33 conformance drivers dex keystone s3; do (cd hack/$$module && go mod tidy -diff) || exit 1; done
	$(HELM) lint --strict charts/berth charts/space
	$(VALE) $(PROSE)
	hack/check-package-size
	hack/check-dependencies
	hack/check-vulnerabilities

.PHONY: check-generated
check-generated: ## Check that generated files are fresh, by writing them: no build may run meanwhile.
	hack/check-generated

.PHONY: fmt
fmt: ## Format the code.
	$(TOOL) golangci-lint-kube-api-linter fmt

.PHONY: generate
generate: ## Write generated files anew.
	go generate ./...

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin
