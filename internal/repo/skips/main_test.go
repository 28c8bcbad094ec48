package main

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const log = `go: downloading something
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: no server here\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:7: server version: redis 6.0: has no such command\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestD","Output":"    d_test.go:7: left to make test-all: the same behind a guard\n"}
{"Action":"skip","Package":"p","Test":"TestD"}
{"Action":"pass","Package":"p"}
{"Action":"fail","Package":"q","Test":"TestA/sub"}
{"Action":"fail","Package":"q","Test":"TestA"}
{"Action":"fail","Package":"q"}
{"Action":"fail","Package":"broken"}
{"Action":"skip","Package":"empty"}
`

func TestCount(t *testing.T) {
	const fault = "skipped without leave: p TestB: b_test.go:7: no server here"
	for short, want := range map[bool]string{
		false: fmt.Sprint(1, 3, 1, []string{fault}),
		true:  fmt.Sprint(1, 3, 1, []string{}),
	} {
		passed, failed, left, faults, err := count(strings.NewReader(log), short)
		if got := fmt.Sprint(passed, failed, left, faults); got != want || err != nil {
			t.Errorf("short %v: %s, %v; want %s", short, got, err, want)
		}
	}
}
