package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// beforePrefix begins the name of a participant that is holdfast as of another commit.
const beforePrefix = "before:"

// current is a participant's name as of now.
func current(name string) string { return strings.TrimPrefix(name, beforePrefix) }

// ours are the directories that are those of now in the tree of another commit: this program, and
// what it starts servers by, which needs nothing else of the tree.
var ours = []string{filepath.Join("internal", "bench"), filepath.Join("internal", "testserver")}

// buildBefore builds this program on the holdfast of another commit: its tree, with ours in place
// of its own benchmark. So both measure the same, and differ in holdfast alone.
func buildBefore(ctx context.Context, root, commit, dir string) (program string, err error) {
	tree := filepath.Join(dir, "before")
	bench := filepath.Join(tree, "internal", "bench")
	program = filepath.Join(dir, "bench-before")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return "", err
	}
	archive := exec.CommandContext(ctx, "git", "-C", root, "archive", "--format=tar", commit)
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", tree)
	archive.Stderr, unpack.Stderr = os.Stderr, os.Stderr
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		return "", err
	}
	if err := unpack.Start(); err != nil {
		return "", err
	}
	if err := errors.Join(archive.Run(), unpack.Wait()); err != nil {
		return "", fmt.Errorf("the tree of %s: %w", commit, err)
	}
	for _, name := range ours {
		if err := os.RemoveAll(filepath.Join(tree, name)); err != nil {
			return "", err
		}
		if err := copyTree(filepath.Join(root, name), filepath.Join(tree, name)); err != nil {
			return "", err
		}
	}
	// It was of the root's module.
	if _, err := os.Stat(filepath.Join(tree, "etcdbackend", "go.mod")); err != nil {
		const own = "github.com/holdfast-go/holdfast/etcdbackend"
		edit := exec.CommandContext(ctx, "go", "mod", "edit", "-droprequire="+own,
			"-dropreplace="+own)
		edit.Dir = bench
		edit.Stderr = os.Stderr
		if err := edit.Run(); err != nil {
			return "", err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-o", program, ".")
	build.Dir = bench
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("the benchmark on the holdfast of %s: %w", commit, err)
	}
	return program, nil
}

func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
}

// A Change is what a metric is now, as a multiple of what it was before in the same round.
type Change struct {
	Scenario string       `json:"scenario"`
	N        int          `json:"n"`
	Who      string       `json:"who"`
	Metric   string       `json:"metric"`
	Now      stats.Spread `json:"now_over_before"`
	Verdict  string       `json:"verdict"` // better, worse, or "same": the interval contains 1
}

// apart is by how much a figure of one round has to differ.
const apart = 0.1

// changes compares everything that was measured on both commits.
func changes(results []*Result) (all []Change) {
	for _, r := range results {
		metrics := []string{"rate", "cpu", "sent", "allocs", "memory", "idle", "bytes"}
		if r.Relay {
			metrics[0] = "p50" // the rate is how long the lock is held
		}
		for _, name := range r.names() {
			for _, metric := range metrics {
				if c, ok := r.change(name, metric); ok {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

func (r *Result) change(who, metric string) (Change, bool) {
	ratios := r.values(func(x Round) (float64, bool) {
		now, ok := x.Cells[who][metric]
		before, ok2 := x.Cells[beforePrefix+who][metric]
		return now / before, ok && ok2 && before > 0
	})
	c := Change{r.Scenario, r.N, who, metric, stats.SpreadOf(ratios), "same"}
	margin := 0.0
	if r.Counts {
		margin = apart
	}
	above, below := c.Now.Low > 1+margin, c.Now.High < 1-margin
	switch more := metric == "rate"; {
	case len(ratios) == 0:
		return c, false
	case (r.valid() < valid || len(ratios) < valid) && !r.Counts:
		c.Verdict = undecided
	case above && more || below && !more:
		c.Verdict = "better"
	case below && more || above && !more:
		c.Verdict = "worse"
	}
	return c, true
}
