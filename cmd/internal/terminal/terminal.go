// Package terminal writes for people, on standard output or what takes its place.
package terminal

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// Is reports whether f is a terminal that takes escape sequences. Windows' console shows them as
// text, unless it is told not to.
func Is(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows"
}

// Size is how many columns and lines f has, or 80 and 24 if it does not tell.
func Size(f *os.File) (columns, lines int) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return 80, 24
	}
	return w, h
}

// Paint says whether colours are shown.
type Paint bool

// Colours is for text on standard output, if it is a terminal and the user wants some: there are
// none if NO_COLOR (https://no-color.org) is in the environment and not empty.
func Colours(wanted bool) Paint {
	return Paint(wanted && os.Getenv("NO_COLOR") == "" && Is(os.Stdout))
}

// A Colour is the number that selects it in an escape sequence.
type Colour int

// The colours. Plain is the terminal's own.
const (
	Red    Colour = 31
	Green  Colour = 32
	Yellow Colour = 33
	Plain  Colour = 39
)

// In is text in colour c. For text/tabwriter the sequences have a width, so all cells of a column
// are to have some: they are of one length.
func (p Paint) In(c Colour, text string) string {
	if !p {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[%dm", c, text, Plain)
}

// Fold breaks a paragraph into lines of at most so many columns, unless it is indented. A word that
// is longer has a line of its own.
func Fold(text string, columns int) []string {
	if strings.Contains("\n"+text, "\n ") || strings.Contains("\n"+text, "\n\t") {
		return strings.Split(text, "\n")
	}
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case Width(*last)+1+Width(word) <= columns:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// Width is how many columns a terminal shows text in, which has no control characters.
func Width(text string) (columns int) {
	for _, r := range text {
		columns += widthOf(r)
	}
	return columns
}

func widthOf(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
		return 2 // safeguard: wide-character
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf): // it is shown with the one before
		return 0 // safeguard: combining-character
	}
	return 1
}

// Cut is text without what is behind so many columns.
func Cut(text string, columns int) string {
	for i, r := range text {
		if columns -= widthOf(r); columns < 0 {
			return text[:i]
		}
	}
	return text
}

// Shorten is text with its middle left out if it has more than so many columns.
func Shorten(text string, columns int) string {
	if columns < 1 || Width(text) <= columns {
		return Cut(text, columns)
	}
	head := Cut(text, columns/2)
	tail := text[len(head):]
	over := Width(text) + 1 - columns
	for i, r := range tail {
		if over <= 0 && widthOf(r) > 0 {
			return head + "…" + tail[i:]
		}
		over -= widthOf(r)
	}
	return head + "…"
}
