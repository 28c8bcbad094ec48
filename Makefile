# `make help` lists the targets. CI runs .ci/run, which is made of them.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

GO       ?= go
PKGS     ?= ./...
TIMEOUT  ?= 8m  # per package; the whole of `make test` stays under 12 minutes on a fresh machine with 2 cores
SEEDS    ?= 1000 # of make sim
FUZZTIME ?= 10s # per fuzz target; 5000x is a number of inputs

gotest := $(GO) run ./internal/repo/gotest
lint   := $(GO) tool -modfile=internal/tools/go.mod golangci-lint

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install what the tests need and is missing: redis-server, etcd, chromium, a C compiler for -race
	@.ci/deps

.PHONY: build
build: ## build every package; the command line goes to bin/holdfast
	$(GO) build ./...
	$(GO) build -o bin/ ./cmd/...

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: fmt
fmt: ## format every file
	$(lint) fmt

.PHONY: fmt-check
fmt-check: ## fail if a file is not gofmt'ed
	@bad=$$(gofmt -l .); if [ -n "$$bad" ]; then echo "not formatted (make fmt):"; echo "$$bad"; exit 1; fi

.PHONY: lint
lint: ## golangci-lint, pinned in internal/tools; its first build takes some minutes
	$(lint) run ./...

.PHONY: check
check: fmt-check vet build ## the quick look before a commit: formatting, vet, build, tests without -race; under 3 minutes
	$(gotest) -short -timeout=2m $(PKGS)

.PHONY: test
test: deps ## every test with the race detector and real servers; a test skipped without leave is a failure
	$(GO) build -race ./...
	$(gotest) -again=5 -race -shuffle=on -p=1 -timeout=$(strip $(TIMEOUT)) $(PKGS) # one package at a time: leases are short, and servers run beside

.PHONY: test-jaeger
test-jaeger: deps ## traces of two processes, read back from a real Jaeger; its first build takes 5 to 10 minutes
	cd internal/jaegerd && $(GO) build -ldflags '-s -w' -o ../../bin/jaeger github.com/jaegertracing/jaeger/cmd/jaeger
	$(GO) vet -tags jaeger ./internal/jaegertest
	HOLDFAST_JAEGER=$(CURDIR)/bin/jaeger $(GO) test -tags jaeger -count=1 -timeout=3m ./internal/jaegertest

.PHONY: interop
interop: ## exclude redsync, bsm/redislock, node-redlock and redis-py in the string dialect; installs what is missing of them
	@.ci/deps interop
	@cd internal/interop/js && npm ci --silent --no-audit --no-fund
	cd internal/interop && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: soak
soak: deps ## half a minute each way of what `make test` does for a second: connections that are killed every 50ms
	$(GO) test -race -count=1 -run KilledAgainAndAgain -v ./rueidisbackend -args -storm=30s

.PHONY: conformance
conformance: deps ## the whole suite also on three etcd members and Debian's etcd, where make test leaves out what the client alone decides
	$(GO) test -race -count=1 -timeout=$(strip $(TIMEOUT)) -run 'TestConformance$$' ./etcdbackend -args -whole

.PHONY: redis-versions
redis-versions: deps ## the Redis suites on Redis 6.0 and 8.6, Valkey 8.0 and 9.1, unpacked into ~/.cache; a minute each
	@.ci/deps redis-versions
	@for name in $$(.ci/redis-versions); do \
		echo "== $$name"; export HOLDFAST_REDIS_SERVER=$$(.ci/redis-versions $$name); \
		$(gotest) -short -count=1 -timeout=$(strip $(TIMEOUT)) ./internal/testserver -run='Redis|Version'; \
		$(gotest) -short -count=1 -timeout=$(strip $(TIMEOUT)) ./internal/redis/... ./redisbackend ./rueidisbackend; \
	done

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s, or 5000x for a number of inputs)
	@.ci/fuzz $(strip $(FUZZTIME))

.PHONY: sim
sim: ## the quorum in simulated time, SEEDS (1000) of them, with one safeguard removed at a time, and repeated; some ten seeds a second
	$(GO) test -count=1 -v -timeout=2h ./internal/simulation -run 'TestSimulation$$|TestVariants|TestRepeats' -seeds=$(strip $(SEEDS)) | grep -v -e '^=== ' -e ' seeds/'

.PHONY: mutants
mutants: deps ## break the code on purpose, one defect at a time: the tests must notice each; some minutes
	$(GO) run ./internal/mutants

.PHONY: bench
bench: deps ## measure against other libraries, about 18 minutes with 2 idle CPUs; BENCHFLAGS="-scenario S1 -json file"
	@cd internal/bench && HOLDFAST_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null || true) $(GO) run . $(BENCHFLAGS)

.PHONY: bench-quick
bench-quick: ## the same with fewer cases and shorter, under 3 minutes: for a look, not for a claim
	@$(MAKE) bench BENCHFLAGS="-quick $(BENCHFLAGS)"

.PHONY: bench-test
bench-test: deps ## the benchmark's own tests; it is a module of its own, so `make test` does not reach it
	cd internal/bench && $(GO) vet ./... && $(GO) test ./...

.PHONY: cover
cover: deps ## tests with coverage across packages; the figures go to cover.out
	$(gotest) -timeout=$(strip $(TIMEOUT)) -coverpkg=./... -coverprofile=cover.out $(PKGS)
	@$(GO) tool cover -func=cover.out | tail -1

.PHONY: generate
generate: ## write docs/failure-modes.md again, after a `// covers:` comment changed
	$(GO) generate ./internal/repo/...

.PHONY: clean
clean: ## remove what the targets above left
	rm -rf bin cover.out
