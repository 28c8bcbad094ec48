package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReport(t *testing.T) {
	const passing = `
{"Action":"run","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Test":"A","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`
	const skipping = `
{"Action":"output","Package":"p","Test":"S","Output":"=== RUN   S\n"}
{"Action":"output","Package":"p","Test":"S","Output":"    x_test.go:7: no server\n"}
{"Action":"output","Package":"p","Test":"S","Output":"--- SKIP: S (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"S"}
`
	const failing = `
{"Action":"output","Package":"p","Test":"F","Output":"=== RUN   F\n"}
{"Action":"output","Package":"p","Test":"F","Output":"    x_test.go:9: wrong\n"}
{"Action":"output","Package":"p","Test":"F","Output":"--- FAIL: F (0.1s)\n"}
{"Action":"fail","Package":"p","Test":"F"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`
	const unbuilt = `
{"Action":"build-output","ImportPath":"p","Output":"p/x.go:1:1: no\n"}
{"Action":"build-fail","ImportPath":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p"}
`
	const crashed = `
{"Action":"output","Package":"p","Test":"F","Output":"panic: boom\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`
	for _, test := range []struct {
		name, in, allowed string
		short             bool
		want              string
		good              bool
	}{
		{"nothing", "", "", false, "0 passed, 0 failed\n", true},
		{"passing", passing, "", false, "ok  \tp\t0.1s\n1 passed, 0 failed\n", true},
		{"skip", skipping, "", false, "skipped without leave: p S: x_test.go:7: no server\n0 passed, 1 failed\n", false},
		{"allowed", skipping, "p S # no such kernel", false, "skipped, as allowed: p S: x_test.go:7: no server\n0 passed, 0 failed\n", true},
		{"short", skipping, "", true, "skipped: p S: x_test.go:7: no server\n0 passed, 0 failed\n", true},
		{"failing", failing, "", false, "--- FAIL: F (0.1s)\n    x_test.go:9: wrong\nFAIL\tp\t0.1s\n0 passed, 1 failed\n", false},
		{"unbuilt", unbuilt, "", false, "p/x.go:1:1: no\nFAIL\tp [build failed]\n0 passed, 1 failed\n", false},
		{"crashed", crashed, "", false, "panic: boom\nFAIL\tp\t0.1s\n0 passed, 1 failed\n", false},
		{"no event", "go: no such tool\n", "", false, "go: no such tool\n0 passed, 0 failed\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out, test.allowed, test.short)
			if err := r.read(strings.NewReader(strings.TrimPrefix(test.in, "\n"))); err != nil {
				t.Fatal(err)
			}
			if good := r.close(); good != test.good || out.String() != test.want {
				t.Errorf("good = %v, want %v; output:\n%s\nwant:\n%s", good, test.good, out.String(), test.want)
			}
		})
	}
}
