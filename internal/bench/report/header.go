package report

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
)

// A Machine is where and with what was measured. It names nobody's host.
type Machine struct {
	Date   string `json:"date"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Load   string `json:"load_before"` // above about 0.5 somebody else was at work
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Redis  string `json:"redis"`
	Commit string `json:"commit"`
	Pinned bool   `json:"pinned"`
}

// Here describes this machine.
func Here(redis string, cpus int, pinned bool) Machine {
	m := Machine{
		Date: time.Now().UTC().Format("2006-01-02"), CPUs: cpus, Go: strings.TrimPrefix(runtime.Version(), "go"),
		Redis: redis, Pinned: pinned, CPU: runtime.GOARCH, Kernel: first("/proc/sys/kernel/osrelease"), Load: first("/proc/loadavg"),
		Commit: os.Getenv("HOLDFAST_COMMIT"),
	}
	if load := strings.Fields(m.Load); len(load) > 0 {
		m.Load = load[0]
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	if build, ok := debug.ReadBuildInfo(); ok && m.Commit == "" {
		for _, s := range build.Settings {
			if s.Key == "vcs.revision" {
				m.Commit = s.Value[:min(len(s.Value), 9)]
			}
		}
	}
	return m
}

func first(file string) string {
	text, _ := os.ReadFile(file)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// Header writes where and with what was measured.
func Header(w io.Writer, m Machine) {
	pinned := "server on CPU 1, clients on CPU 0"
	if !m.Pinned {
		pinned = "NOT PINNED: one round trip takes 9 or 65 µs by the scheduler's luck, so the figures are not comparable"
	}
	fmt.Fprintf(w, "holdfast %s, %s, %s (%d CPUs), kernel %s, load %s before, Go %s, Redis %s on loopback without persistence; %s.\n\n",
		m.Commit, m.Date, m.CPU, m.CPUs, m.Kernel, m.Load, m.Go, m.Redis, pinned)
	lines := [][]string{{"implementation", "role", "versions", "settings"}}
	for _, im := range append(impl.All(), impl.Quorums()...) {
		lines = append(lines, []string{im.Name, string(im.Role), im.Versions(), im.Settings})
	}
	write(w, lines)
	fmt.Fprintln(w, "\nMedians of the rounds, in parentheses what they lie between. Only ratios within one run count.")
}
