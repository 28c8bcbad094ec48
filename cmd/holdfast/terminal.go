package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"
)

// isTerminal reports whether f is one that takes escape sequences. Windows' console shows them as
// text, unless it is told not to.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 &&
		os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows"
}

const noColor = "no-color"

// paint says whether colours are shown.
type paint bool

// paint is for text on a terminal, unless --no-color or NO_COLOR (https://no-color.org) is given.
func (o *common) paint(cmd *cobra.Command) paint {
	not, err := cmd.Flags().GetBool(noColor)
	not = not || err != nil || os.Getenv("NO_COLOR") != ""
	return paint(!not && o.output == "text" && isTerminal(os.Stdout))
}

// A colour is the number that selects it in an escape sequence.
type colour int

const (
	red    colour = 31
	green  colour = 32
	yellow colour = 33
	plain  colour = 39 // the terminal's own
)

// in is text in colour c. For text/tabwriter the sequences have a width, so all cells of a column
// are to have some: they are of one length.
func (p paint) in(c colour, text string) string {
	if !p {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[%dm", c, text, plain)
}
