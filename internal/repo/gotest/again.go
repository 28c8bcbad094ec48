package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// # The second chance
//
// Tests with real servers and short leases can fail because the machine stood still, and one such failure in thousands of tests
// should not cost a whole run. With -again=N a test that failed is run N times more, alone. If it passes each time it is
// unsteady: that is printed beside its first failure, and is a defect to be mended, but does not fail the run.
//
// Whatever may be more than a matter of time gets no second chance, since it may be the one time in a thousand that two hold one
// lock: see serious. Nor do more than mostUnsteady tests of a run, nor a package that failed as a whole.
const mostUnsteady = 3

// serious finds what is never put down to time: data races, panics, leaks, deadlocks, and all that speaks of holders and tokens.
var serious = regexp.MustCompile(`(?i)DATA RACE|panic|fatal error|goroutine|deadlock|overlap|violation|two hold|both hold|` +
	`over its capacity|exceeds the capacity|token|granted|password|leak`)

// again runs the tests that failed once more by run, unless one of them gets no second chance.
func (r *report) again(run func(pkg string, tests []string) *report) {
	if r.failed == 0 || r.whole || len(r.failures) > mostUnsteady {
		return
	}
	byPackage := map[string][]string{}
	for n, output := range r.failures {
		if hit := serious.FindString(output); hit != "" {
			fmt.Fprintf(r.out, "no second chance for %s %s: it speaks of %q\n", n.pkg, n.test, hit)
			return
		}
		byPackage[n.pkg] = append(byPackage[n.pkg], n.test)
	}
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		tests := slices.Sorted(slices.Values(byPackage[pkg]))
		if second := run(pkg, tests); second.failed > 0 || second.passed < len(tests) {
			return
		}
		for _, test := range tests {
			r.unsteady = append(r.unsteady, pkg+" "+test)
		}
	}
	r.failed = 0
}

// rerun is args for the tests alone, n times.
func rerun(args []string, n, pkg string, tests []string) []string {
	var flags []string
	for _, a := range args {
		if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "-cover") {
			flags = append(flags, a)
		}
	}
	return append(flags, "-count="+n, "-run=^("+strings.Join(tests, "|")+")$", pkg)
}
