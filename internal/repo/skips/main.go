// Command skips is what gotestsum runs at its end. It fails if a test was skipped without leave,
// since a server that cannot start must not turn into a green run, and prints how many tests were
// left to make test-all, and "N passed, N failed". With -short every test may skip.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	log, err := os.Open(os.Getenv("GOTESTSUM_JSONFILE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
	short := slices.Contains(os.Args[1:], "-short")
	passed, failed, left, faults, err := count(log, short)
	for _, f := range faults {
		fmt.Println(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
	}
	if left > 0 {
		fmt.Printf("make test-all runs %d more: other set-ups of the same suites, and what takes long\n", left)
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed+len(faults))
	if len(faults) > 0 || err != nil {
		os.Exit(1) // failed tests are gotestsum's own failure
	}
}

// What is in the reasons that testserver.OnlyWhere and testserver.InTestAll give; that is leave.
const (
	versionSkip = "server version: "
	leftSkip    = "left to make test-all: "
)

// count reads what go test -json printed. A package that failed without a test that did counts as
// one.
func count(log io.Reader, short bool) (passed, failed, left int, faults []string, err error) {
	type test struct{ Package, Test string }
	output := map[test][]string{}
	failedIn := map[string]bool{}
	for lines := bufio.NewReader(log); ; {
		line, end := lines.ReadBytes('\n')
		var e struct {
			test
			Action, Output string
		}
		if len(line) > 0 && json.Unmarshal(line, &e) == nil { // else it is no event
			switch e.Action {
			case "output":
				output[e.test] = append(output[e.test], e.Output)
			case "pass", "fail", "skip":
				switch {
				case e.Action == "fail" && (e.Test != "" || !failedIn[e.Package]):
					failed++
					failedIn[e.Package] = true
				case e.Action == "pass" && e.Test != "":
					passed++
				case e.Action == "skip" && strings.Contains(reason(output[e.test]), leftSkip):
					left++
				case e.Action == "skip" && e.Test != "" && !short && !strings.Contains(reason(output[e.test]), versionSkip):
					faults = append(faults, fmt.Sprintf("skipped without leave: %s %s: %s", e.Package, e.Test, reason(output[e.test])))
				}
				delete(output, e.test)
			}
		}
		if end == io.EOF {
			return passed, failed, left, faults, nil
		}
		if end != nil {
			return passed, failed, left, faults, end
		}
	}
}

// reason is what the test said, without the lines of the test runner.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}
