package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
)

// A table is printed in columns, two blanks apart. All have as many cells.
type table []column

type column struct {
	cells []string
	width int

	least    int  // it is not made narrower; 0 is what measured takes
	optional int  // above 0: only if there is room, the highest goes first
	fold     bool // what is too wide goes on in the next line, instead of being shortened

	paint func(row int, text string) string // nil: no colour
}

// measured sets the width of each column to that of its widest cell, and keeps words that go on in
// the next line whole.
func (t table) measured() table {
	for i := range t {
		c := &t[i]
		for _, cell := range c.cells {
			c.width = max(c.width, terminal.Width(cell))
			for _, word := range strings.Fields(cell) {
				if c.fold {
					c.least = max(c.least, terminal.Width(word))
				}
			}
		}
		switch {
		case c.least == 0 && c.optional > 0:
			c.least = c.width // whole, or not at all
		case c.least == 0:
			c.least = 4
		}
	}
	return t
}

// fit is the table no wider than width, which is not limited if it is 0. Optional columns are
// left out if they say nothing below their name, or if they cannot be made narrow enough. If that
// does not do, the widest of the others are made narrower.
func (t table) fit(width int) table {
	if width == 0 {
		return t
	}
	over := func() (n int) {
		for _, c := range t {
			n += c.width + 2
		}
		return n - 2 - width
	}
	t = slices.DeleteFunc(slices.Clone(t), func(c column) bool {
		return c.optional > 0 && !slices.ContainsFunc(c.cells[1:], func(cell string) bool {
			return cell != "-"
		})
	})
	last := 0
	for _, c := range t {
		last = max(last, c.optional)
	}
	for ; last > 0 && over() > 0; last-- {
		// safeguard: optional-narrower
		tooWide := func(c column) bool { return c.optional == last && c.width-over() < c.least }
		t = slices.DeleteFunc(t, tooWide)
		if i := slices.IndexFunc(t, func(c column) bool { return c.optional == last }); i >= 0 {
			t[i].width -= over()
		}
	}
	for over() > 0 {
		widest := -1
		for i, c := range t {
			if c.width > c.least && (widest < 0 || c.width > t[widest].width) {
				widest = i
			}
		}
		if widest < 0 {
			break // what is too wide even so, the terminal cuts off or breaks
		}
		t[widest].width--
	}
	return t
}

// row returns the lines of one row: a single one if no column folds.
func (t table) row(i int) []string {
	var parts [][]string
	lines := 1
	for _, c := range t {
		part := []string{terminal.Shorten(c.cells[i], c.width)}
		if c.fold && part[0] != c.cells[i] { // else its blanks stay as they are
			part = terminal.Fold(c.cells[i], c.width)
		}
		parts, lines = append(parts, part), max(lines, len(part))
	}
	all := make([]string, lines)
	for n := range all {
		var b strings.Builder
		for k, c := range t {
			text := ""
			if n < len(parts[k]) {
				text = parts[k][n]
			}
			blanks := strings.Repeat(" ", max(0, c.width-terminal.Width(text))+2)
			if c.paint != nil && text != "" {
				text = c.paint(i, text)
			}
			b.WriteString(text + blanks)
		}
		all[n] = strings.TrimRight(b.String(), " ")
	}
	return all
}

// print prints all rows, each line behind so many blanks.
func (t table) print(w io.Writer, indent string) error {
	for i := range t[0].cells {
		for _, line := range t.row(i) {
			if _, err := fmt.Fprintln(w, indent+line); err != nil {
				return err
			}
		}
	}
	return nil
}

// room is how wide text on standard output can be: as the window of a terminal, else 0, which is no
// limit.
func room() int {
	if !terminal.Is(os.Stdout) {
		return 0
	}
	width, _ := terminal.Size(os.Stdout)
	return width
}
