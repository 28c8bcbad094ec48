// Package report writes what was measured, for people and as JSON.
package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/bench/scenario"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// Table writes a scenario: medians of the rounds, and for the first two columns what they lie between.
func Table(w io.Writer, r *scenario.Result) {
	s := r.Scenario
	fmt.Fprintf(w, "\n## %s: %s\n\n%d rounds, %.2g s a cell. %s.\n\n", s.Name, s.Title, r.Rounds, r.Seconds, s.Note)
	columns := append(slices.Clone(s.Columns), scenario.Column{Metric: "others", Title: "others' CPU", Format: scenario.Percent})
	lines := [][]string{{"", "n"}}
	for _, c := range columns {
		lines[0] = append(lines[0], c.Title)
	}
	for _, row := range r.Rows {
		line := []string{row.Participant, fmt.Sprint(row.Case)}
		for i, c := range columns {
			line = append(line, cell(row.Spread(c.Metric), c, i < 2))
		}
		if row.Error != "" {
			line[0] += " (failed)"
		}
		lines = append(lines, line)
	}
	write(w, lines)
}

// cell writes a metric; what must be zero is told by its worst round, not by a median.
func cell(s stats.Spread, c scenario.Column, spread bool) string {
	switch {
	case s.N == 0:
		return "-"
	case c.Metric == "faults" || c.Metric == "errors" || c.Metric == "left":
		return format(s.Max, c.Format)
	case spread && s.N > 1:
		return fmt.Sprintf("%s (%s–%s)", format(s.Median, c.Format), format(s.Min, c.Format), format(s.Max, c.Format))
	}
	return format(s.Median, c.Format)
}

func format(x float64, f scenario.Format) string {
	switch f {
	case scenario.Micros:
		switch {
		case x >= 1e6:
			return fmt.Sprintf("%.2f s", x/1e6)
		case x >= 1e4:
			return fmt.Sprintf("%.0f ms", x/1e3)
		case x >= 1e3:
			return fmt.Sprintf("%.1f ms", x/1e3)
		case x >= 100:
			return fmt.Sprintf("%.0f µs", x)
		}
		return fmt.Sprintf("%.1f µs", x)
	case scenario.Ratio:
		if x >= 100 {
			return fmt.Sprintf("%.0f", x)
		}
		if x > 0.9 && x < 1 { // Jain's 0.9994 is not 1
			return fmt.Sprintf("%.4g", math.Floor(x*1e4)/1e4)
		}
		return fmt.Sprintf("%.3g", x)
	case scenario.Percent:
		return fmt.Sprintf("%.0f %%", 100*x)
	case scenario.Bytes:
		return fmt.Sprintf("%.0f B", x)
	}
	switch {
	case x >= 1e5:
		return fmt.Sprintf("%.0fk", x/1e3)
	case x >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	}
	return fmt.Sprintf("%.0f", x)
}

// write writes a Markdown table that is also aligned for a terminal.
func write(w io.Writer, lines [][]string) {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, c := range line {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for n, line := range lines {
		for i, c := range line {
			fmt.Fprintf(w, "| %s%s ", c, strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)))
		}
		fmt.Fprintln(w, "|")
		if n > 0 {
			continue
		}
		for _, wide := range width {
			fmt.Fprintf(w, "| %s ", strings.Repeat("-", max(wide, 3)))
		}
		fmt.Fprintln(w, "|")
	}
}
