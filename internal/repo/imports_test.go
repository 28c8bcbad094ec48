package repo

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// importRules says what the files of each package, tests aside, may import beside the standard
// library. Names without a dot in their first element are packages of this module; "x/..." is x and
// all below it; "*" is anything. A package that is not here has no place in the tree yet: add it
// together with the reason of its imports.
const importRules = `
backend:                 # the contract; whoever writes a backend gets no dependency from us
backend/membackend:      backend internal/memstore
backend/filebackend:     backend waiting internal/memstore golang.org/x/sys/unix
backend/backendtest:     backend locker waiting internal/history

waiting:                 github.com/cenkalti/backoff/v4 internal/jitter  # knows nothing of locks

# Backends know their own client and the contract; never locker, never each other.
internal/redis/script:     backend
internal/redis:     backend waiting internal/redis/script  # what both Redis backends share, and no client
redisbackend:            backend internal/redis/script internal/redis github.com/redis/go-redis/v9/...
rueidisbackend:          backend waiting internal/redis/script internal/redis github.com/redis/rueidis/...
etcdbackend:             backend waiting go.etcd.io/etcd/... google.golang.org/grpc/... go.uber.org/zap
redlock:                 backend waiting internal/jitter  # never a concrete backend

# What applications import: no store's client and no telemetry comes with it.
locker:                  backend waiting internal/jitter
locker/fence:            locker backend  # the stores come by the caller; database/sql and net/http are the library's own
locker/config:           locker backend waiting go.yaml.in/yaml/v3
tracing:                 locker backend internal/blame internal/keyclass go.opentelemetry.io/otel/...
tracing/contention:      locker backend internal/blame internal/keyclass github.com/google/pprof/profile  # for programs without telemetry too

internal/blame:          backend
internal/jitter:         # jitter, which the simulation makes its own
internal/history:
internal/keyclass:
internal/memstore:       backend waiting
internal/redistest:      backend backend/backendtest locker internal/redis/script internal/redis internal/storetest internal/testserver
internal/storetest:      backend
internal/etcdbin:        # std alone, as a benchmark uses it, too
internal/testserver:     internal/etcdbin  # starts servers and knows no client of theirs
internal/jaegertest:     # a test, and no code
internal/simulation:     backend waiting locker redlock internal/history internal/memstore
internal/mutants:        # breaks other packages by their text alone
internal/repo:
internal/repo/failuremodes:
internal/repo/path:      backend backend/membackend locker redisbackend rueidisbackend  # what it measures
internal/repo/skips:

cmd/holdfast:            *
cmd/holdfast/...:        *
`

// TestImports holds the tree to architecture: what package may know what other.
func TestImports(t *testing.T) {
	report(t, checkImports(tree(), importRules))
}

// testOnly are packages that no shipped code may import, the command's demonstrations apart.
var testOnly = []string{"backend/backendtest", "internal/history", "internal/testserver", "internal/simulation", "internal/redistest", "internal/storetest"}

func checkImports(tree fs.FS, rules string) (faults []string) {
	allowed := parseRules(rules)
	there := map[string]bool{}
	for _, s := range sources(tree) {
		there[s.dir()] = true
	}
	for pkg := range allowed {
		if !strings.HasSuffix(pkg, "/...") && !there[pkg] {
			faults = append(faults, fmt.Sprintf("importRules has a row for %s, which is no package", pkg))
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
			faults = append(faults, fmt.Sprintf("%s: package %s is not in importRules", s.name, s.dir()))
			continue
		}
		for _, imp := range s.imports() {
			local := strings.TrimPrefix(imp, module+"/")
			if standard(imp) || slices.ContainsFunc(may, func(pattern string) bool { return matches(pattern, local) }) {
				continue
			}
			faults = append(faults, fmt.Sprintf("%s imports %s, which %s may not", s.name, imp, s.dir()))
		}
	}
	return faults
}

func parseRules(rules string) map[string][]string {
	allowed := map[string][]string{}
	for line := range strings.Lines(rules) {
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
				faults = append(faults, fmt.Sprintf("%s imports %s, which is for tests", s.name, imp))
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
	expect(t, checkImports(tree, rules), "b/b.go imports "+module+"/a", "b/b2.go imports x.org/y", "package d is not in importRules",
		"a row for gone")

	tree = fixture(map[string]string{
		"locker/a.go":      "package locker\nimport _ \"" + module + "/backend/backendtest\"",
		"locker/b.go":      "package locker\nimport _ \"testing\"",
		"locker/a_test.go": "package locker\nimport _ \"" + module + "/backend/backendtest\"",
		"cmd/x/x.go":       "package main\nimport _ \"" + module + "/internal/testserver\"",
	})
	expect(t, checkTestOnly(tree), "locker/a.go imports "+module+"/backend/backendtest", "locker/b.go imports testing")
}
