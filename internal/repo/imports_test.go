package repo

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// importRules says what the files of each package, tests aside, may import beside the standard
// library. Names without a dot in their first element are packages of this repository; "x/..." is x
// and all below it; "*" is anything; a line that begins with a space goes on with the one before. A
// package that is not here has no place in the tree yet: add it together with the reason of its
// imports.
const importRules = `
backend:                 # the contract; whoever writes a backend gets no dependency from us
backend/membackend:      backend backend/record waiting
backend/filebackend:     backend backend/record waiting golang.org/x/sys/unix
backend/record:          backend waiting
backend/record/recordtest: backend backend/record backend/backendtest
backend/backendtest:     backend locker waiting internal/history internal/linear

waiting:                 github.com/cenkalti/backoff/v4 internal/jitter  # knows nothing of locks

# Backends know their own client and the contract; never locker, never each other.
internal/redis/script:   backend
internal/redis:          backend waiting internal/redis/script  # what both share, and no client
redisbackend:            backend internal/redis/script internal/redis
                         github.com/redis/go-redis/v9/...
rueidisbackend:          backend waiting internal/redis/script internal/redis
                         github.com/redis/rueidis/...
etcdbackend:             backend waiting internal/suspend go.etcd.io/etcd/...
                         google.golang.org/grpc/... go.uber.org/zap
backend/pgbackend:       backend backend/record waiting github.com/jackc/pgx/v5/...
redlock:                 backend waiting internal/jitter  # never a concrete backend

# What applications import: no store's client and no telemetry comes with it.
locker:                  backend waiting internal/jitter internal/suspend
# The stores come by the caller; database/sql and net/http are the library's own.
locker/fence:            locker backend
locker/config:           locker backend waiting go.yaml.in/yaml/v3
tracing:                 locker backend internal/blame go.opentelemetry.io/otel/...
# For programs without telemetry too.
tracing/contention:      locker backend internal/blame github.com/google/pprof/profile

internal/blame:          backend
internal/jitter:         # jitter, which the simulation makes its own; in waiting it would be public
internal/jitter/virtual: # the jitter of simulations
internal/suspend:        # a clock that goes on, for all who reckon with leases
internal/history:
internal/simstore:       backend backend/record waiting  # simulated nodes, by clocks of their own
internal/redistest:      backend waiting backend/backendtest locker internal/history
                         internal/redis/script internal/redis internal/storetest
                         internal/testserver
# What the tests of all stores share; testserver knows no contract, redistest is of Redis.
internal/storetest:      backend
# Starts servers and knows no client of theirs; std alone, as a benchmark uses it, too.
internal/testserver:
internal/simulation:     backend waiting locker redlock internal/history internal/simstore
# A store for simulations, which counts as etcd does.
internal/counting:       backend internal/simstore
# The second judge of histories.
internal/linear:         github.com/anishathalye/porcupine internal/history
# A Redis for simulations, which runs the Lua that ships.
internal/smallredis:     github.com/yuin/gopher-lua/...
internal/redissim:       # tests, and no code
internal/mutants:        # breaks other packages by their text alone
internal/repo:
internal/repo/failuremodes:
internal/repo/licenses:
# What it measures.
internal/repo/path:      backend backend/membackend locker redisbackend rueidisbackend
internal/repo/skips:
internal/repo/stress:

# The tour alone, which is built in seconds: cmd/demo has a test of all that it links.
cmd/demo:                backend cmd/internal/demo github.com/spf13/pflag
cmd/internal/demo:       backend backend/membackend backend/filebackend locker tracing/contention
                         internal/blame cmd/internal/terminal github.com/spf13/pflag
cmd/internal/terminal:   golang.org/x/term golang.org/x/text/width

# Tests of everything together, and no code: here, as the module of the command needs every store,
# and is needed by none.
cmd/internal/chaos:
cmd/internal/jaegertest:

cmd/holdfast-vet:        golang.org/x/tools/go/...
cmd/holdfast:            *
cmd/holdfast/...:        *
`

// TestImports holds the tree to architecture: what package may know what other.
func TestImports(t *testing.T) {
	report(t, checkImports(tree(), importRules))
}

// testOnly are packages that no shipped code may import, the command's demonstrations apart.
var testOnly = []string{
	"backend/backendtest", "backend/record/recordtest", "internal/history",
	"internal/testserver", "internal/simulation", "internal/simstore", "internal/smallredis",
	"internal/counting", "internal/jitter/virtual", "internal/linear", "internal/redistest",
	"internal/storetest",
}

func checkImports(tree fs.FS, rules string) (faults []string) {
	allowed := parseRules(rules)
	there := map[string]bool{}
	for _, s := range sources(tree) {
		there[s.dir()] = true
	}
	for pkg := range allowed {
		if !strings.HasSuffix(pkg, "/...") && !there[pkg] {
			faults = append(faults, fmt.Sprintf("importRules has a row for %s, which is no package",
				pkg))
		}
	}
	for _, s := range sources(tree) {
		if s.test {
			continue
		}
		may, known := allowed[s.dir()]
		if !known {
			may, known = wildcard(allowed, s.dir())
		}
		if !known {
			faults = append(faults, fmt.Sprintf("%s: package %s is not in importRules", s.name,
				s.dir()))
			continue
		}
		for _, imp := range s.imports() {
			local := strings.TrimPrefix(imp, module+"/")
			if standard(imp) || slices.ContainsFunc(may, func(pattern string) bool {
				return matches(pattern, local)
			}) {
				continue
			}
			faults = append(faults, fmt.Sprintf("%s imports %s, which %s may not", s.name, imp,
				s.dir()))
		}
	}
	return faults
}

func parseRules(rules string) map[string][]string {
	allowed := map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(rules, "\n ", " ")) {
		line, _, _ = strings.Cut(line, "#")
		if pkg, may, ok := strings.Cut(line, ":"); ok {
			allowed[strings.TrimSpace(pkg)] = strings.Fields(may)
		}
	}
	return allowed
}

func wildcard(allowed map[string][]string, dir string) ([]string, bool) {
	for pkg, may := range allowed {
		if strings.HasSuffix(pkg, "/...") && matches(pkg, dir) {
			return may, true
		}
	}
	return nil, false
}

func matches(pattern, imp string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return imp == below || strings.HasPrefix(imp, below+"/")
	}
	return pattern == "*" || pattern == imp
}

// standard says whether an import path is of the standard library: its first element has no dot.
func standard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

// TestTestPackages keeps what is for tests out of what ships.
func TestTestPackages(t *testing.T) {
	report(t, checkTestOnly(tree()))
}

func checkTestOnly(tree fs.FS) (faults []string) {
	for _, s := range sources(tree) {
		if s.test || slices.Contains(testOnly, s.dir()) || strings.HasPrefix(s.dir(), "cmd/") {
			continue
		}
		for _, imp := range s.imports() {
			if slices.Contains(testOnly, strings.TrimPrefix(imp, module+"/")) || imp == "testing" {
				faults = append(faults, fmt.Sprintf("%s imports %s, which is for tests", s.name,
					imp))
			}
		}
	}
	return faults
}

func TestImportsCanFail(t *testing.T) {
	const rules = "a: b # reason\nb:\ngone: a\nc/...: x.org/y/...\n"
	tree := fixture(map[string]string{
		"a/a.go":        "package a\nimport (\n\"fmt\"\n\"" + module + "/b\"\n)",
		"a/a_test.go":   "package a\nimport \"" + module + "/d\"",
		"b/b.go":        "package b\nimport \"" + module + "/a\"",
		"b/b2.go":       "package b\nimport \"x.org/y\"",
		"c/sub/c.go":    "package c\nimport \"x.org/y/z\"",
		"d/d.go":        "package d",
		"mod/go.mod":    "module other",
		"mod/free.go":   "package free\nimport \"x.org/anything\"",
		"b/testdata.go": "package b",
	})
	expect(t, checkImports(tree, rules), "b/b.go imports "+module+"/a", "b/b2.go imports x.org/y",
		"package d is not in importRules",
		"a row for gone")

	tree = fixture(map[string]string{
		"locker/a.go":      "package locker\nimport _ \"" + module + "/backend/backendtest\"",
		"locker/b.go":      "package locker\nimport _ \"testing\"",
		"locker/a_test.go": "package locker\nimport _ \"" + module + "/backend/backendtest\"",
		"cmd/x/x.go":       "package main\nimport _ \"" + module + "/internal/testserver\"",
	})
	expect(t, checkTestOnly(tree), "locker/a.go imports "+module+"/backend/backendtest",
		"locker/b.go imports testing")
}
