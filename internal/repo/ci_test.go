package repo

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestStepsHaveTimes holds the tables of times in CONTRIBUTING.md to the steps of .ci/run and of
// make test-all: each is there, and they add up to less than 20 minutes and an hour.
func TestStepsHaveTimes(t *testing.T) {
	report(t, checkSteps(tree()))
}

var (
	runForm  = regexp.MustCompile(`(?m)/steps" (.+)$`)
	allForm  = regexp.MustCompile(`(?m)^STEPS +\?= (.+)$`)
	stepForm = regexp.MustCompile(`'[^']+'|\S+`)
	timeForm = regexp.MustCompile("(?m)^\\| `make (.+)` \\| (\\d+) \\|$")
)

func checkSteps(tree fs.FS) (faults []string) {
	page := read(tree, "CONTRIBUTING.md")
	for _, c := range []struct {
		name, file string
		steps      *regexp.Regexp
		limit      int // seconds
	}{
		{".ci/run", ".ci/run", runForm, 1200},
		{"make test-all", "Makefile", allForm, 3600},
	} {
		m := c.steps.FindStringSubmatch(read(tree, c.file))
		head := "| of `" + c.name + "` | seconds |\n|---|---:|\n"
		_, table, found := strings.Cut(page, head)
		if m == nil || !found {
			faults = append(faults, fmt.Sprintf("CONTRIBUTING.md has no table of the steps of "+
				"%s: want it to begin %q", c.name, head))
			continue
		}
		table, _, _ = strings.Cut(table, "\n\n")
		times, sum := map[string]bool{}, 0
		for _, row := range timeForm.FindAllStringSubmatch(table, -1) {
			seconds, _ := strconv.Atoi(row[2])
			times[row[1]] = true
			sum += seconds
		}
		for _, step := range stepForm.FindAllString(m[1], -1) {
			step = strings.Trim(step, "'")
			if !times[step] {
				faults = append(faults, fmt.Sprintf("CONTRIBUTING.md does not say how long make "+
					"%s takes, a step of %s", step, c.name))
			}
			delete(times, step)
		}
		for step := range times {
			faults = append(faults, fmt.Sprintf("CONTRIBUTING.md says how long make %s takes, "+
				"which is no step of %s", step, c.name))
		}
		if !strings.Contains(table+"\n", fmt.Sprintf("\n| all | %d |\n", sum)) || sum >= c.limit {
			faults = append(faults, fmt.Sprintf("CONTRIBUTING.md: the steps of %s take %d "+
				"seconds; want that as all, and less than %d", c.name, sum, c.limit))
		}
	}
	return faults
}

func TestStepsHaveTimesCanFail(t *testing.T) {
	const run, all = "exec \"$(dirname \"$0\")/steps\" a 'b X=1'\n", "STEPS     ?= c d\n"
	const second = "| of `make test-all` | seconds |\n|---|---:|\n| `make c` | 3000 |\n| `make " +
		"d` | 5 |\n| all | 3005 |\n\n"
	for table, fault := range map[string]string{
		"| `make a` | 5 |\n| `make b X=1` | 6 |\n| all | 11 |": "",
		"| `make a` | 5 |\n| all | 5 |": "how long make b X=1 takes, " +
			"a step of .ci/run",
		"| `make a` | 5 |\n| `make b X=1` | 6 |\n| `make c` | 6 |\n| all | 17 |": "make c takes, " +
			"which is no step of .ci/run",
		"| `make a` | 5 |\n| `make b X=1` | 6 |\n| all | 12 |":      "take 11 seconds",
		"| `make a` | 5 |\n| `make b X=1` | 1200 |\n| all | 1205 |": "take 1205 seconds",
	} {
		var want []string
		if fault != "" {
			want = append(want, fault)
		}
		page := "| of `.ci/run` | seconds |\n|---|---:|\n" + table + "\n\n" + second
		expect(t, checkSteps(fixture(map[string]string{
			".ci/run": run, "Makefile": all,
			"CONTRIBUTING.md": page,
		})), want...)
	}
	expect(t, checkSteps(fixture(map[string]string{
		".ci/run": run, "Makefile": all,
		"CONTRIBUTING.md": "",
	})), "no table of the steps of .ci/run",
		"no table of the steps of make test-all")
}

// TestStepsGoOn runs .ci/steps on targets that pass, fail, and have a test that passed at the
// second run.
func TestStepsGoOn(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a shell script")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, ".ci", "steps")
	for name, text := range map[string]string{
		".ci/steps": read(tree(), ".ci/steps"),
		"Makefile": "good:\n\t@echo good\nbad:\n\t@echo; echo '=== FAIL: locker TestLock " +
			"(0.1s)'; echo; echo 1 failed; exit 1\n" +
			"broken:\n\t@echo no compiler; exit 1\nflaky:\n\t@echo 'FLAKY locker TestWait: " +
			"failed 1 of 2'\nset:\n\t@[ $(X) = 1 ]\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		//nolint:gosec // a script is to be run
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	steps := func(steps ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), script, steps...).CombinedOutput()
		return string(out), err
	}

	out, err := steps("bad", "broken", "flaky", "set X=1")
	if err == nil {
		t.Error("passed, where two steps fail")
	}
	_, end, _ := strings.Cut(out, "| step |")
	for _, want := range []string{
		"(?m)^--- bad FAILED after", "\\| `make bad` \\| \\d+ \\| FAILED: locker TestLock \\|\n",
		"\\| `make broken` \\| \\d+ \\| FAILED: no compiler \\|\n",
		"\\| `make flaky` \\| \\d+ \\| passed \\|\n",
		"\\| `make set X=1` \\| \\d+ \\| passed \\|\n",
		"\\| all \\| \\d+ \\| \\|\nFLAKY locker TestWait: failed 1 of 2\n$",
	} {
		if !regexp.MustCompile(want).MatchString(end) &&
			!regexp.MustCompile(want).MatchString(out) {
			t.Errorf("printed\n%s\nwant %s", out, want)
		}
	}
	if out, err := steps("good", "set X=1"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
