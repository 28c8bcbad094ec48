# `make help` lists the targets. CI runs .ci/run, which is made of them.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

GO       ?= go
PKGS     ?= ./...
TIMEOUT  ?= 20m # per package, for a busy machine; the whole of `make test` takes under 12 minutes on an idle one with 2 cores
SEEDS    ?= 1000 # of make sim
FUZZTIME ?= 10s # per fuzz target; 5000x is a number of inputs

tool   := $(GO) tool -modfile=internal/tools/go.mod
lint   := $(tool) golangci-lint
# A line for each package, the output of what failed, and "N passed, N failed". A test that is skipped without -short is a failure.
gotest = mkdir -p bin && $(tool) gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg --hide-summary=skipped,output \
	--jsonfile=bin/tests.json --post-run-command='$(GO) run ./internal/repo/skips $(1)' -- $(1)
# What else the module is built for. Its tests are checked, too, but run here alone.
platforms := windows/amd64 darwin/arm64 linux/386 linux/arm

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install what the tests need and is missing: redis-server, etcd, postgresql, chromium, a C compiler for -race
	@.ci/deps page

.PHONY: servers
servers: # deps without what only the test of a page needs
	@.ci/deps

.PHONY: build
build: ## build every package; the command line goes to bin/holdfast
	$(GO) build ./...
	$(GO) build -o bin/ ./cmd/...

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: vet-all
vet-all: vet ## go vet for every platform: windows, darwin, and 32 bits; compiles everything once for each
	@for p in $(platforms); do echo "vet for $$p"; GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet ./...; done

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
	@$(call gotest,-short) -timeout=2m $(PKGS)

.PHONY: test
test: ## every test with the race detector and real servers; a test skipped without leave is a failure
	@.ci/deps $(if $(filter ./... ./tracing%,$(PKGS)),page)
	$(GO) build -race ./...
	@$(call gotest) -race -shuffle=on -p=1 -timeout=$(strip $(TIMEOUT)) $(PKGS) # one package at a time: leases are short, and servers run beside

.PHONY: test-jaeger
test-jaeger: servers ## traces of two processes, read back from a real Jaeger; its first build takes 5 to 10 minutes
	cd internal/jaegerd && $(GO) build -ldflags '-s -w' -o ../../bin/jaeger github.com/jaegertracing/jaeger/cmd/jaeger
	$(GO) vet -tags jaeger ./internal/jaegertest
	HOLDFAST_JAEGER=$(CURDIR)/bin/jaeger $(GO) test -tags jaeger -count=1 -timeout=3m ./internal/jaegertest

.PHONY: test-prometheus
test-prometheus: ## the alerts and the dashboard of docs/metrics, in a real Prometheus
	@.ci/deps prometheus
	$(GO) vet -tags jaeger,prometheus ./internal/jaegertest
	$(GO) test -tags jaeger,prometheus -count=1 -timeout=3m -run TestPrometheus ./internal/jaegertest

.PHONY: interop
interop: ## exclude redsync, bsm/redislock, node-redlock and redis-py in the string dialect; installs what is missing of them
	@.ci/deps interop
	@cd internal/interop/js && npm ci --silent --no-audit --no-fund
	cd internal/interop && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: fencing
fencing: servers ## holders that are stopped, against SQLite, PostgreSQL, Redis, etcd and HTTP; a module of its own, for its drivers
	cd internal/fencing && $(GO) vet ./... && $(GO) test -count=1 -parallel=16 ./...

.PHONY: generations
generations: ## see how the old ways to lock with Redis fail, and holdfast not; half a minute
	@.ci/deps
	@$(GO) run ./cmd/holdfast generations

.PHONY: soak
soak: servers ## half a minute each way of what `make test` does for a second: connections that are killed every 50ms
	$(GO) test -race -count=1 -run KilledAgainAndAgain -v ./rueidisbackend -args -storm=30s

.PHONY: flash-sale
flash-sale: servers ## 10,000 units, sold by processes of which one is killed every second, on each store; minutes each
	$(GO) test -count=1 -timeout=$(strip $(TIMEOUT)) -run 'TestFlashSale$$' -v ./redisbackend ./rueidisbackend ./etcdbackend ./backend/filebackend -args -backendtest.units=10000

.PHONY: conformance
conformance: servers ## the whole suite also on three etcd members and Debian's etcd, where make test leaves out what the client alone decides
	$(GO) test -race -count=1 -timeout=$(strip $(TIMEOUT)) -run 'TestConformance$$' ./etcdbackend -args -whole

.PHONY: redis-versions
redis-versions: servers ## the Redis suites on Redis 6.0 and 8.6, Valkey 8.0 and 9.1, unpacked into ~/.cache; a minute each
	@.ci/deps redis-versions
	@for name in $$(.ci/redis-versions); do \
		echo "== $$name"; export HOLDFAST_REDIS_SERVER=$$(.ci/redis-versions $$name); \
		$(GO) test -count=1 -run='Redis|Version' ./internal/testserver; \
		$(call gotest,-short) -count=1 -timeout=$(strip $(TIMEOUT)) ./internal/redis/... ./redisbackend ./rueidisbackend; \
	done

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s, or 5000x for a number of inputs)
	@.ci/fuzz $(strip $(FUZZTIME))

.PHONY: sim
sim: ## the quorum in simulated time, SEEDS (1000) of them, with one safeguard removed at a time, and repeated; some ten seeds a second
	$(GO) test -count=1 -v -timeout=2h ./internal/simulation -run 'TestSimulation$$|TestVariants|TestRepeats' -seeds=$(strip $(SEEDS)) | grep -v -e '^=== ' -e ' seeds/'

.PHONY: mutants
mutants: servers ## break the code on purpose, one defect at a time: the tests must notice each; MUTANTS="-run tombstone"
	$(GO) run ./internal/mutants $(MUTANTS)

.PHONY: bench
bench: servers ## measure against other libraries and floors, under 20 minutes with 2 idle CPUs; BENCHFLAGS="-scenario 'S1|S2.*' -before COMMIT"
	@cd internal/bench && $(GO) run . $(BENCHFLAGS)

.PHONY: bench-quick
bench-quick: ## the same with fewer cells and rounds, under 3 minutes: for a look, nothing is decided
	@$(MAKE) bench BENCHFLAGS="-quick $(BENCHFLAGS)"

.PHONY: bench-page
bench-page: ## the same as bench, and writes docs/benchmarks.md with its picture and raw run
	@$(MAKE) bench BENCHFLAGS="-page ../../docs/benchmarks.md $(BENCHFLAGS)"

.PHONY: bench-test
bench-test: servers ## the benchmark's own tests; it is a module of its own, so `make test` does not reach it
	cd internal/bench && $(GO) vet ./... && $(GO) test ./...

.PHONY: path
path: servers ## the functions and files that one Lock and Unlock pass; ROW="redis:// free" lists them
	@$(GO) run ./internal/repo/path $(ROW)

.PHONY: cover
cover: deps ## tests with coverage across packages; the figures go to cover.out
	@$(call gotest) -timeout=$(strip $(TIMEOUT)) -coverpkg=./... -coverprofile=cover.out $(PKGS)
	@$(GO) tool cover -func=cover.out | tail -1

.PHONY: generate
generate: ## write docs/failure-modes.md again, after a `// covers:` comment changed
	$(GO) generate ./internal/repo/...

.PHONY: clean
clean: ## remove what the targets above left
	rm -rf bin cover.out
