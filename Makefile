# `make help` lists the targets. CI runs .ci/run, which is made of them.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

GO       ?= go
PKGS     ?= work # every package of every module of go.work
TIMEOUT  ?= 20m # per package, for a busy machine; the whole of `make test` takes 7 minutes on an idle one with 2 cores
SEEDS    ?= 500 # of make sim
FUZZTIME ?= 5000x # inputs per fuzz target; 10s is a time

# A comma in the argument of a call.
, := ,

# The pinned tools are of a module of their own, and run in the workspace.
tool    = $$(GOWORK=off $(GO) tool -modfile=$(CURDIR)/internal/tools/go.mod -n $(1))
lint    = $(call tool,golangci-lint)
# $(call gotest,flags,packages) prints a line for each package, and the output of what failed, that again at the end. A test that failed is run
# again, twice at the most; internal/repo/skips says what of it counts all the same, and fails the run.
gotest = $(call tool,gotestsum) --format=pkgname-and-test-fails --format-hide-empty-pkg --hide-summary=skipped --jsonfile="$(CURDIR)/bin/tests.json" \
	--rerun-fails=2 --rerun-fails-max-failures=8 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
	--post-run-command='"$(CURDIR)/bin/skips" $(filter -short,$(1))' --packages="$(strip $(2))" -- $(1)
# Tests with servers mostly wait, for leases to end: two packages run at once, and several tests of each. Those that take longest
# begin first. The servers are their own.
overlap := -p=2 -parallel=4
pkgs     = $(if $(filter work,$(PKGS)),$(slowest)) $(PKGS)
slowest := ./backend/filebackend ./redisbackend ./rueidisbackend ./etcdbackend ./backend/pgbackend ./cmd/holdfast ./locker ./internal/redissim ./internal/repo ./redlock
# The clusters of etcd's tests need both processors to answer in time.
apart    = ./etcdbackend "$(filter-out ./etcdbackend,$(slowest)) $$($(GO) list work | grep -v '/etcdbackend$$' | paste -sd' ')"
race     = -race -shuffle=on -vet=off -timeout=$(strip $(TIMEOUT)) $(overlap)
# Modules of their own that are no part of go.work, for what only they import.
nested    := adapters bench fencing interop onrecord
# What make test-all runs, beside what .ci/run does.
STEPS     ?= vet-all release suites fencing onrecord adapters redis-versions fuzz sim chaos mutants soak bench-test test-jaeger test-prometheus interop
# What else the module is built for. Its tests are checked, too, but run here alone.
platforms := windows/amd64 darwin/arm64 freebsd/amd64 linux/386 linux/arm

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install what the tests need and is missing: redis-server, etcd, postgresql, chromium, a C compiler for -race
	@.ci/deps all

.PHONY: servers
servers: # what make test needs of them
	@.ci/deps

.PHONY: build
build: ## build every package; the command line goes to bin/holdfast
	$(GO) build work
	$(GO) build -o bin/ ./cmd/...

.PHONY: judge
judge: # of a run of the tests; and the modules of the programs that tests build as their users do, without a network
	@mkdir -p bin && $(GO) build -o bin/ ./internal/repo/skips
	@GOWORK=off $(GO) mod download

.PHONY: vet
vet: ## go vet: of every module with code that calls ours, and of tests behind a tag
	$(GO) vet work
	$(GO) vet -tags jaeger,prometheus ./cmd/internal/jaegertest
	for dir in $(nested); do (cd internal/$$dir && GOWORK=off $(GO) vet ./...); done

.PHONY: vet-all
vet-all: vet ## go vet for every platform: Windows, macOS, FreeBSD, and 32 bits; compiles everything once for each
	@for p in $(platforms); do echo "vet for $$p"; GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet work; done

.PHONY: fmt
fmt: ## format every file
	$(lint) fmt

.PHONY: fmt-check
fmt-check: ## fail if a file is not gofmt'ed
	@bad=$$(gofmt -l .); if [ -n "$$bad" ]; then echo "not formatted (make fmt):"; echo "$$bad"; exit 1; fi

.PHONY: lint
lint: ## golangci-lint, pinned in internal/tools, whose first build takes some minutes; holdfast-vet
	$(lint) run ./... ./cmd/... ./cmd/holdfast-vet/... ./etcdbackend/... ./backend/pgbackend/...
	$(GO) build -o bin/holdfast-vet ./cmd/holdfast-vet && $(GO) vet -vettool=$(CURDIR)/bin/holdfast-vet work
	for dir in fencing adapters; do (cd internal/$$dir && GOWORK=off $(GO) vet -vettool=$(CURDIR)/bin/holdfast-vet ./...); done

.PHONY: check
check: fmt-check vet build judge ## the quick look before a commit: formatting, vet, build, tests without -race; under 8 minutes
	@export HOLDFAST_TESTS=main; $(call gotest,-short -timeout=5m $(overlap),$(pkgs))

.PHONY: test
test: servers judge ## every test with the race detector and real servers, each suite once: 7 minutes, 8 with cold caches
	$(GO) build -race work
	@export HOLDFAST_TESTS=main; $(call gotest,$(race),$(pkgs))

.PHONY: test-all
test-all: ## everything else that there is, under an hour, and a table of it; STEPS="suites mutants": those alone
	@.ci/steps $(STEPS)

.PHONY: stress
stress: deps ## run what tests are new or edited since BASE thirty times each, as a flaky one costs others their change; BASE=commit
	$(GO) run ./internal/repo/stress $(BASE)

.PHONY: suites
suites: deps judge ## make test on every set-up: clusters, old servers, PostgreSQL, sales with kills, a page in a browser
	$(GO) build -race work
	@failed=0; for packages in $(if $(filter work,$(PKGS)),$(apart),"$(PKGS)"); do $(call gotest,$(race),$$packages) || failed=1; done; exit $$failed

.PHONY: test-jaeger
test-jaeger: servers judge ## traces of two processes, read back from a real Jaeger; its first build takes 5 to 10 minutes
	cd internal/jaegerd && GOWORK=off $(GO) build -ldflags '-s -w' -o ../../bin/jaeger github.com/jaegertracing/jaeger/cmd/jaeger
	@export HOLDFAST_JAEGER=$(CURDIR)/bin/jaeger; $(call gotest,-tags=jaeger -count=1 -timeout=5m,./cmd/internal/jaegertest)

.PHONY: test-prometheus
test-prometheus: judge ## the alerts and the dashboard of docs/metrics, in a real Prometheus
	@.ci/deps prometheus
	@$(call gotest,-tags=jaeger$(,)prometheus -count=1 -timeout=3m -run=TestPrometheus,./cmd/internal/jaegertest)

.PHONY: interop
interop: judge ## exclude redsync, bsm/redislock, rueidislock, node-redlock and redis-py in the string dialect; installs what is missing of them
	@.ci/deps interop
	@cd internal/interop/js && npm ci --silent --no-audit --no-fund
	@cd internal/interop && export GOWORK=off && $(call gotest,-count=1,./...)

.PHONY: fencing
fencing: deps judge ## holders that are stopped, against SQLite, PostgreSQL, Redis, etcd and HTTP; a module of its own, for its drivers
	@cd internal/fencing && export GOWORK=off && $(call gotest,-count=1 -parallel=16,./...)

.PHONY: onrecord
onrecord: judge ## the backend that docs/writing-a-backend.md shows, on SQLite, through the suite; a module of its own, for its driver
	@cd internal/onrecord && export GOWORK=off && $(call gotest,-count=1,./...)

.PHONY: pg
pg: deps judge ## the backend on PostgreSQL, a module of its own: the suite, processes, sales with kills, a server that crashes
	@$(call gotest,-race -count=1 -timeout=$(strip $(TIMEOUT)),./backend/pgbackend/...)

.PHONY: adapters
adapters: servers judge ## what programs copy for gocron, asynq, river, net/http, golang-migrate, goose and client-go, against each; a module of its own
	@cd internal/adapters && export GOWORK=off && $(call gotest,-count=1,./...)

.PHONY: generations
generations: ## see how the old ways to lock with Redis fail, and holdfast not; half a minute
	@.ci/deps
	@$(GO) run ./cmd/holdfast generations

.PHONY: soak
soak: servers judge ## half a minute each way of what `make test` does for a second: connections that are killed every 50ms
	@$(call gotest,-race -count=1 -run=KilledAgainAndAgain,./rueidisbackend) -args -storm=30s

.PHONY: flash-sale
flash-sale: deps ## 10,000 units, sold by processes of which one is killed every second, on each store; minutes each
	$(GO) test -count=1 -timeout=$(strip $(TIMEOUT)) -run 'TestFlashSale$$' -v ./redisbackend ./rueidisbackend ./etcdbackend ./backend/filebackend ./backend/pgbackend -args -backendtest.units=10000

.PHONY: release
release: export HOLDFAST_TESTS = main
release: servers judge ## each module as released: the command in bin/release, on the newest dependencies; the others, tested on the oldest
	.ci/tidy -diff
	.ci/release --dry-run
	@echo "the module of the root, alone"
	GOWORK=off $(GO) vet ./...
	@export GOWORK=off; packages=$$($(GO) list ./... | grep -v -e /internal/repo -e /internal/mutants | paste -sd' '); \
	$(call gotest,-short -count=1 $(overlap) -timeout=$(strip $(TIMEOUT)),$$packages)
	@for module in etcdbackend backend/pgbackend; do \
		echo "$$module and what it needs"; \
		rm -f bin/oldest.work; export GOWORK=$(CURDIR)/bin/oldest.work; $(GO) work init . ./$$module; $(GO) vet ./$$module/...; \
		$(call gotest,-short -count=1 -timeout=$(strip $(TIMEOUT)),./$$module/...); \
	done

.PHONY: tidy
tidy: ## go mod tidy, for each module of go.work
	.ci/tidy

.PHONY: redis-versions
redis-versions: servers judge ## the Redis suites on Redis 6.0 and 8.6, Valkey 8.0 and 9.1, unpacked into ~/.cache; a minute each
	@.ci/deps redis-versions
	@for name in $$(.ci/redis-versions); do \
		echo "== $$name"; export HOLDFAST_REDIS_SERVER=$$(.ci/redis-versions $$name); \
		$(call gotest,-short -count=1 -run='Redis|Version',./internal/testserver); \
		$(call gotest,-short -count=1 $(overlap) -timeout=$(strip $(TIMEOUT)),./internal/redis/... ./internal/smallredis ./redisbackend ./rueidisbackend); \
	done

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (5000x: so many inputs, or 10s)
	@.ci/fuzz $(strip $(FUZZTIME))

.PHONY: sim
sim: ## a quorum, what ships for Redis and for etcd, and records in a bad store, in simulated time: SEEDS (500) of each kind, one safeguard removed at a time, and repeated
	mkdir -p bin
	$(GO) test -count=1 -v -timeout=2h -coverpkg=./internal/redis -coverprofile=bin/sim.cover ./internal/simulation ./internal/redissim ./backend/record ./etcdbackend \
		-run 'TestSimulation$$|TestSimulatedLeaderPauses|TestVariants|TestRepeats|TestLuaIsRun|TestStorm' -seeds=$(strip $(SEEDS)) | grep -v -e '^=== ' -e ' seeds/' -e '^coverage:'
	@awk '/\/native\.go:/ { n[$$1] = $$2; runs[$$1] += $$3 } END { for (b in n) { all += n[b]; if (runs[b]) run += n[b]; else not = not "\n\t" b } \
		printf "%d of %d statements of internal/redis/native.go were run, and not:%s\n", run, all, not; exit run < 0.96 * all }' bin/sim.cover

.PHONY: chaos
chaos: servers ## processes on real servers, both killed, stopped, cut off, flushed and more, 2 minutes; CHAOS=1h: everything, for so long; SCENARIO, SEED
	@for name in redis8 valkey9; do .ci/redis-versions $$name >/dev/null; done
	@$(GO) test -count=1 -timeout=$(if $(CHAOS),24h,10m) -parallel=4 -v ./cmd/internal/chaos -run '^TestChaos$$$(if $(SCENARIO),/./^$(SCENARIO)$$)' \
		-args -seed=$(or $(SEED),$$((RANDOM * 32768 + RANDOM + 1))) $(if $(CHAOS),-long=$(CHAOS)) $(if $(SCENARIO),-only) \
		$(if $(PAGE),-page=$(CURDIR)/docs/chaos.md) | grep -v '^=== '

.PHONY: mutants
mutants: deps ## take one of 590 safeguards away at a time: the tests must notice each, in half an hour; MUTANTS="-run tombstone"
	$(GO) run ./internal/mutants $(MUTANTS)

.PHONY: bench
bench: servers ## measure against other libraries and floors, under 20 minutes with 2 idle CPUs; BENCHFLAGS="-scenario 'S1|S2.*' -before COMMIT"
	@cd internal/bench && GOWORK=off $(GO) run . $(BENCHFLAGS)

.PHONY: bench-quick
bench-quick: ## the same with fewer cells and rounds, under 3 minutes: for a look, nothing is decided
	@$(MAKE) bench BENCHFLAGS="-quick $(BENCHFLAGS)"

.PHONY: bench-page
bench-page: ## the same as bench, and writes docs/benchmarks.md with its picture and raw run
	@$(MAKE) bench BENCHFLAGS="-page ../../docs/benchmarks.md $(BENCHFLAGS)"

.PHONY: bench-test
bench-test: servers judge ## the benchmark's own tests; it is a module of its own, so `make test` does not reach it
	@cd internal/bench && export GOWORK=off && $(call gotest,,./...)

.PHONY: demo
demo: ## what the library does, in a minute
	@$(GO) run ./cmd/demo

.PHONY: path
path: servers ## the functions and files that one Lock and Unlock pass; ROW="redis:// free" lists them
	@$(GO) run ./internal/repo/path $(ROW)

.PHONY: lines
lines: ## lines that ship, of each module: Go and Lua of public packages and commands, comments included; no tests, no test tools
	@$(GO) list -deps -f '{{$$d := .Dir}}{{with .Module}}{{if .Main}}{{range $$.GoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{range $$.IgnoredGoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{range $$.EmbedFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}' \
		$$($(GO) list work | grep -v -e /internal/ -e /backendtest -e /recordtest) | grep -e '\.go$$' -e '\.lua$$' | grep -v -e _test.go -e /golden/ -e /testserver/ | xargs wc -l | \
		awk '/ total$$/ { next } / .*\/cmd\// { c += $$1; next } / .*\/etcdbackend\// { e += $$1; next } / .*\/pgbackend\// { p += $$1; next } { l += $$1 } END { \
			printf "library     %6d\netcdbackend %6d\npgbackend   %6d\ncommand     %6d\nall         %6d\n", l, e, p, c, l + e + p + c }'

.PHONY: man
man: ## write a manual page for each command to bin/man
	$(GO) run ./cmd/holdfast man bin/man

.PHONY: cover
cover: deps judge ## tests with coverage across packages; the figures go to cover.out
	@$(call gotest,$(overlap) -timeout=$(strip $(TIMEOUT)) -coverpkg=github.com/holdfast-go/holdfast/... -coverprofile=cover.out,$(pkgs))
	@$(GO) tool cover -func=cover.out | tail -1

.PHONY: generate
generate: ## write docs/failure-modes.md again, after a `// covers:` comment changed
	$(GO) generate ./internal/repo/...

.PHONY: clean
clean: ## remove what the targets above left
	rm -rf bin cover.out
