// Package terminal writes for people, on standard output or what takes its place.
package terminal

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Is reports whether f is a terminal that takes escape sequences. Windows' console shows them as
// text, unless it is told not to.
func Is(f *os.File) bool {
	return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows"
}

// Size is how many columns and lines f has, or 80 and 24 if it does not tell.
func Size(f *os.File) (width, height int) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return 80, 24
	}
	return w, h
}

// Paint says whether colours are shown.
type Paint bool

// Colours is for text on standard output, if it is a terminal and the user wants some: there are none if
// NO_COLOR (https://no-color.org) is in the environment and not empty.
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

// Fold breaks a paragraph into lines of at most so many characters, unless it is indented. A word
// that is longer has a line of its own.
func Fold(text string, width int) []string {
	if strings.Contains("\n"+text, "\n ") || strings.Contains("\n"+text, "\n\t") {
		return strings.Split(text, "\n")
	}
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
