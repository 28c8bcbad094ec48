package repo

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"testing"
)

// TestStepsHaveTimes holds the table of times in CONTRIBUTING.md to the steps of .ci/run: each is
// there, and they add up to less than an hour.
func TestStepsHaveTimes(t *testing.T) {
	report(t, checkSteps(tree()))
}

var (
	stepForm = regexp.MustCompile(`(?m)^step \S+ (.+)$`)
	timeForm = regexp.MustCompile("(?m)^\\| `(.+)` \\| (\\d+) \\|$")
	sumForm  = regexp.MustCompile(`(?m)^\| all \| (\d+) \|$`)
)

func checkSteps(tree fs.FS) (faults []string) {
	page := read(tree, "CONTRIBUTING.md")
	times, sum := map[string]bool{}, 0
	for _, m := range timeForm.FindAllStringSubmatch(page, -1) {
		seconds, _ := strconv.Atoi(m[2])
		times[m[1]] = true
		sum += seconds
	}
	for _, m := range stepForm.FindAllStringSubmatch(read(tree, ".ci/run"), -1) {
		if !times[m[1]] {
			faults = append(faults, fmt.Sprintf("CONTRIBUTING.md does not say how long %s takes, a step of .ci/run", m[1]))
		}
		delete(times, m[1])
	}
	for command := range times {
		faults = append(faults, fmt.Sprintf("CONTRIBUTING.md says how long %s takes, which is no step of .ci/run", command))
	}
	if m := sumForm.FindStringSubmatch(page); len(m) == 0 || m[1] != strconv.Itoa(sum) || sum >= 3600 {
		faults = append(faults, fmt.Sprintf("CONTRIBUTING.md: the steps take %d seconds; want that as all, and less than an hour", sum))
	}
	return faults
}

func TestStepsHaveTimesCanFail(t *testing.T) {
	const steps = "step() { # name\nstep a make a\nstep b go run ./b\n"
	for table, fault := range map[string]string{
		"| `make a` | 5 |\n| `go run ./b` | 6 |\n| all | 11 |\n":                   "",
		"| `make a` | 5 |\n| all | 5 |\n":                                          "how long go run ./b takes",
		"| `make a` | 5 |\n| `go run ./b` | 6 |\n| `make c` | 6 |\n| all | 17 |\n": "make c takes, which is no step",
		"| `make a` | 5 |\n| `go run ./b` | 6 |\n| all | 12 |\n":                   "take 11 seconds",
		"| `make a` | 5 |\n| `go run ./b` | 3600 |\n| all | 3605 |\n":              "take 3605 seconds",
	} {
		var want []string
		if fault != "" {
			want = append(want, fault)
		}
		expect(t, checkSteps(fixture(map[string]string{".ci/run": steps, "CONTRIBUTING.md": table})), want...)
	}
}
