package main

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run is what go test -json prints of one attempt of package p: its lines are "Action Test text".
func run(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		action, rest, _ := strings.Cut(line, " ")
		name, text, _ := strings.Cut(rest, " ")
		if text != "" {
			text += "\n"
		}
		fmt.Fprintf(&b, `{"Action":%q,"Package":"m/p","Test":%q,"Output":%q}`+"\n", action, name,
			text)
	}
	return b.String()
}

const stood = "a broken promise, which no second run undoes: m/p "

func TestVerdict(t *testing.T) {
	flaky := func(name string, said ...string) string {
		lines := []string{"start", "output  -test.shuffle 17", "run " + name}
		for _, s := range said {
			lines = append(lines, "output "+name+" "+s)
		}
		return run(append(lines, "fail "+name, "fail")...) +
			run("start", "run "+name, "pass "+name, "pass")
	}
	for _, c := range []struct {
		name  string
		log   string
		short bool
		all   bool   // not make test
		want  string // what is printed, a line each
	}{
		{name: "passed", log: "go: downloading something\n" + run("start", "run A", "run A/sub",
			"pass A/sub", "pass A", "pass"), want: "2 passed, 0 failed, 0 flaky"},
		{
			name: "nothing", log: run("start", "pass"),
			want: "no test was run\n0 passed, 1 failed, 0 flaky",
		},
		{
			name: "flaky", log: flaky("A", "too slow"),
			want: "FLAKY m/p A: failed 1 of 2, shuffle seed 17\n0 passed, 0 failed, 1 flaky",
		},
		{
			name: "flaky twice", log: run("start", "run A", "fail A", "fail", "start", "run A",
				"fail A", "fail", "start", "run A", "pass A", "pass"),
			want: "FLAKY m/p A: failed 2 of 3, shuffle seed none\n0 passed, 0 failed, 1 flaky",
		},
		{
			name: "failed", log: run("start", "run A", "run B", "pass B", "fail A", "fail", "start",
				"run A", "fail A", "fail"),
			want: "failed, and did not pass later: m/p A\n1 passed, 1 failed, 0 flaky",
		},
		{
			name: "subtest not run again", log: run("start", "run A", "run A/seed-1",
				"fail A/seed-1", "fail A", "fail", "start", "run A", "pass A", "pass"),
			want: "failed, and did not pass later: m/p A/seed-1\nFLAKY m/p A: failed 1 of 2, " +
				"shuffle seed none\n0 passed, 1 failed, 1 flaky",
		},
		{
			name: "passed before", log: run("start", "run A", "pass A", "pass", "start", "run A",
				"fail A", "fail"),
			want: "failed, and did not pass later: m/p A\n0 passed, 1 failed, 0 flaky",
		},
		{
			name: "skipped later", log: run("start", "run A", "fail A", "fail", "start", "run A",
				"output A server version: old", "skip A", "pass"),
			want: "failed, and did not pass later: m/p A\n0 passed, 1 failed, 0 flaky",
		},

		{
			name: "package", log: run("start", "run A", "pass A", "output  FAIL: no server",
				"fail") + run("start", "pass"),
			want: "failed without a test that did: m/p: FAIL: no server\n1 passed, 1 " +
				"failed, 0 flaky",
		},
		{
			name: "package in the second attempt", log: run("start", "run A", "fail A", "fail",
				"start", "run A", "pass A", "fail"),
			want: "failed without a test that did: m/p: \nFLAKY m/p A: failed 1 of 2, shuffle " +
				"seed none\n0 passed, 1 failed, 1 flaky",
		},
		{
			name: "does not build", log: `{"Action":"build-fail","ImportPath":"m/p"}` + "\n" +
				run("start", "fail"),
			want: "does not build: m/p\nfailed without a test that did: m/p: \nno test was " +
				"run\n0 passed, 3 failed, 0 flaky",
		},
		{
			name: "unended", log: run("start", "run A", "pass A", "run B", "pass"),
			want: "began and did not end: m/p B\n1 passed, 1 failed, 0 flaky",
		},
		{
			name: "cut off", log: run("start", "run A", "pass A", "run B"),
			want: "began and did not end: m/p B\n1 passed, 1 failed, 0 flaky",
		},
		{
			name: "unended, passed later", log: run("start", "run A", "run B", "fail B", "fail",
				"start", "run B", "pass B", "pass", "start", "run A", "pass A", "pass"),
			want: "began and did not end: m/p A\nFLAKY m/p B: failed 1 of 2, shuffle seed " +
				"none\n1 passed, 1 failed, 1 flaky",
		},

		{
			name: "race", log: run("start", "run A", "output A WARNING: DATA RACE", "pass A",
				"pass"),
			want: "m/p A: WARNING: DATA RACE\n1 passed, 1 failed, 0 flaky",
		},
		{
			name: "race in the first attempt", log: flaky("A", "WARNING: DATA RACE"),
			want: "m/p A: WARNING: DATA RACE\nFLAKY m/p A: failed 1 of 2, shuffle seed 17\n0 " +
				"passed, 1 failed, 1 flaky",
		},
		{
			name: "leak", log: run("start", "run A", "pass A",
				"output  goleak: Errors on successful test run: one", "pass"),
			want: "m/p: goleak: Errors on successful test run: one\n1 passed, 1 failed, 0 flaky",
		},
		{
			name: "panic", log: run("start", "run A", "output A panic: oh", "pass A", "pass"),
			want: "m/p A: panic: oh\n1 passed, 1 failed, 0 flaky",
		},
		{
			name: "fatal error", log: run("start", "run A",
				"output A fatal error: concurrent map writes", "pass A", "pass"),
			want: "m/p A: fatal error: concurrent map writes\n1 passed, 1 failed, 0 flaky",
		},
		{
			name: "panic in a message",
			log: run("start", "run A", "output A     a_test.go:1: panic: of a child", "pass A",
				"pass"), want: "1 passed, 0 failed, 0 flaky",
		},
		{
			name: "panic behind half a line",
			log: `{"Action":"output","Package":"m/p","Test":"A","Output":"said: "}` + "\n" +
				run("run A", "output A panic: of a child", "pass A", "pass"),
			want: "1 passed, 0 failed, 0 flaky",
		},

		{
			name: "two holders, once", log: flaky("A", "    a_test.go:1: seed 5: "+
				history.Violation{Reason: `"k" has two holders`}.Error()),
			want: stood + "A\nFLAKY m/p A: failed 1 of 2, shuffle seed 17\n0 passed, 1 " +
				"failed, 1 flaky",
		},
		{
			name: "two holders, looked for",
			log:  run("start", "run A", "output A "+history.Broken+"found", "pass A", "pass"),
			want: "1 passed, 0 failed, 0 flaky",
		},
		{
			name: "a rule about exclusion, for another reason", log: flaky("C/exclusive/race",
				"no answer"),
			want: "FLAKY m/p C/exclusive/race: failed 1 of 2, shuffle seed 17\n0 passed, 0 " +
				"failed, 1 flaky",
		},
		{
			name: "in a second attempt of three", log: run("start", "run A", "fail A", "fail",
				"start", "run A", "output A     a_test.go:1: "+history.Broken+"two", "fail A",
				"fail") +
				run("start", "run A", "pass A", "pass"),
			want: stood + "A\nFLAKY m/p A: failed 2 of 3, shuffle seed none\n0 passed, 1 " +
				"failed, 1 flaky",
		},
		{
			name: "simulated leaders",
			log: strings.ReplaceAll(flaky("TestSimulatedLeaderPauses/seeds/0"), "m/p",
				"m/etcdbackend"),
			want: "a broken promise, which no second run undoes: m/etcdbackend " +
				"TestSimulatedLeaderPauses/seeds/0\n" +
				"FLAKY m/etcdbackend TestSimulatedLeaderPauses/seeds/0: failed 1 of 2, shuffle " +
				"seed 17\n0 passed, 1 failed, 1 flaky",
		},
		{
			name: "simulation", log: strings.ReplaceAll(flaky("A"), "m/p", "m/internal/redissim"),
			want: "a broken promise, which no second run undoes: m/internal/redissim A\nFLAKY " +
				"m/internal/redissim A: failed 1 of 2, shuffle seed 17\n0 passed, 1 " +
				"failed, 1 flaky",
		},

		{
			name: "no server", log: run("start", "run A", "output A --- SKIP: A",
				"output A     a_test.go:7: no server here", "skip A", "run B", "pass B", "pass"),
			want: "skipped without leave: m/p A: a_test.go:7: no server here\n1 passed, 1 " +
				"failed, 0 flaky",
		},
		{
			name: "no server, -short", short: true,
			log: run("start", "run A", "output A no server here", "skip A", "run B", "pass B",
				"pass"), want: "1 passed, 0 failed, 0 flaky",
		},
		{
			name: "version", log: run("start", "run A",
				"output A     a_test.go:7: server version: redis 6.0: has no such command",
				"skip A", "run B", "pass B", "pass"),
			want: "1 passed, 0 failed, 0 flaky",
		},
		{
			name: "left", log: run("start", "run A",
				"output A     a_test.go:7: left to make test-all: a cluster", "skip A", "run B",
				"pass B", "pass"),
			want: "make test-all runs 1 more: other set-ups of the same suites, and what takes " +
				"long\n1 passed, 0 failed, 0 flaky",
		},
		{
			name: "left in make test-all", all: true, log: run("start", "run A",
				"output A left to make test-all: a cluster", "skip A", "run B", "pass B", "pass"),
			want: "skipped without leave: m/p A: left to make test-all: a cluster\n1 passed, 1 " +
				"failed, 0 flaky",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := verdict{short: c.short, main: !c.all}
			if err := v.read(strings.NewReader(c.log)); err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			v.print(&b)
			if got := strings.TrimSuffix(b.String(), "\n"); got != c.want {
				t.Errorf("printed\n%s\nwant\n%s", got, c.want)
			}
			if fails := len(v.faults) > 0; fails == strings.Contains(c.want, " 0 failed") {
				t.Errorf("fails the run: %v", fails)
			}
		})
	}
}
