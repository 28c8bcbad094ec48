// Command mutants breaks holdfast on purpose, one defect at a time, and runs the tests that must notice.
//
// Each mutant is a defect that a lock library in the field has had, or that a safeguard here exists against. The source tree
// is not touched: the changed file is laid over it with go test -overlay. A mutant that no test notices, and one whose
// text is no longer in the tree, make the command fail.
//
//	go run ./internal/mutants            all of them
//	go run ./internal/mutants -run renew those whose name matches
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A mutant is one defect: in File, the only occurrence of Old becomes New, and then Tests (a -run pattern) of the packages
// must fail.
type mutant struct {
	Name    string
	File    string
	Old     string
	New     string
	Package string
	Tests   string
}

func main() {
	pattern := flag.String("run", "", "regular expression of names")
	verbose := flag.Bool("v", false, "print the output of the tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *pattern, *verbose)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pattern string, verbose bool) error {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	killed, failed := 0, 0
	for _, m := range mutants {
		if !match.MatchString(m.Name) {
			continue
		}
		start := time.Now()
		output, err := m.test(ctx, root, dir)
		verdict := "killed"
		if err != nil {
			verdict = err.Error()
			failed++
		} else {
			killed++
		}
		fmt.Printf("%-45s %-12s %5.1fs  %s\n", m.Name, verdict, time.Since(start).Seconds(), firstFailure(output))
		if verbose {
			fmt.Println(output)
		}
	}
	fmt.Printf("mutants: %d killed, %d not\n", killed, failed)
	if failed > 0 {
		return fmt.Errorf("%d mutants were not killed", failed)
	}
	return ctx.Err()
}

// test lays the mutant over the tree and runs its tests. It returns nil if they failed, as they should.
func (m mutant) test(ctx context.Context, root, dir string) (output string, err error) {
	file := filepath.Join(root, m.File)
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(m.Old)); n != 1 {
		return "", fmt.Errorf("STALE: %q is %d times in %s", m.Old, n, m.File)
	}
	changed := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(changed, bytes.Replace(source, []byte(m.Old), []byte(m.New), 1), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return "", err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-short", "-count=1", "-timeout=45s", "-vet=off",
		"-overlay", overlayFile, "-run", m.Tests)
	cmd.Args = append(cmd.Args, strings.Fields(m.Package)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	output = string(out)
	switch {
	case err == nil:
		return output, fmt.Errorf("SURVIVED")
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return output, fmt.Errorf("DOES NOT BUILD")
	}
	return output, nil
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: test timed out)`)

// firstFailure is the most specific of the first test that failed.
func firstFailure(output string) string {
	if f := failure.FindStringSubmatch(output); f != nil {
		return strings.TrimSpace(f[1] + f[2])
	}
	return ""
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}
