package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
)

// helpWidth is that of the narrowest terminal that people use.
const helpWidth = 80

// groups are the commands as the help of holdfast lists them, each with an example.
var groups = []struct{ title, example, commands string }{
	{"Work under a lock", "holdfast run report ./report.sh", "run leader wait"},
	{
		"Hold a lock across commands", `T=$(holdfast acquire deploy --ttl 30m)`,
		"acquire renew check release",
	},
	{
		"See who holds and who waits", "holdfast list --backend redis://localhost:6379",
		"inspect list top watch",
	},
	{"Look after a store", "holdfast doctor redis://localhost:6379", "doctor bench config"},
	{"See what locks are for", "holdfast demo", "demo generations"},
	{"Other", "holdfast completion bash", "completion help version"},
}

// inGroups sorts the commands of root into groups.
func inGroups(root *cobra.Command) {
	cobra.EnableCommandSorting = false // the first are what people look for
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: fmt.Sprintf("%s (%s)", g.title, g.example)})
		for _, cmd := range root.Commands() {
			if slices.Contains(strings.Fields(g.commands), cmd.Name()) {
				cmd.GroupID = g.title
			}
		}
		root.SetHelpCommandGroupID(g.title)
		root.SetCompletionCommandGroupID(g.title)
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printHelp(cmd.OutOrStdout(), cmd) })
}

// A section of a command's help has a text as it stands, or items.
type section struct {
	title string
	text  string
	items []item
}

type item struct{ name, text string }

// sections are the help of cmd without the description.
func sections(cmd *cobra.Command) []section {
	all := []section{{title: "Usage", text: "  " + cmd.UseLine()}}
	if cmd.Example != "" {
		all = append(all, section{title: "Examples", text: cmd.Example})
	}
	members := func(group string) (items []item) {
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.GroupID == group ||
				c.Name() == "help" && c.GroupID == group {
				items = append(items, item{c.Name(), c.Short})
			}
		}
		return items
	}
	for _, g := range cmd.Groups() {
		all = append(all, section{title: g.Title, items: members(g.ID)})
	}
	if items := members(""); len(items) > 0 {
		all = append(all, section{title: "Commands", items: items})
	}
	flags := section{title: "Flags"}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	_ = cmd.InheritedFlags() // which has cmd.Flags include them
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.items = append(flags.items, flagItem(f))
		}
	})
	return append(all, flags)
}

func flagItem(f *pflag.Flag) item {
	value, text := pflag.UnquoteUsage(f)
	name := "    --" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", --" + f.Name
	}
	if value != "" {
		name += " " + value
	}
	if none := []string{"", "0", "0s", "false"}; !slices.Contains(none, f.DefValue) {
		text += " (default " + f.DefValue + ")"
	}
	return item{name, text}
}

// printHelp prints what cmd does and takes, no wider than helpWidth.
func printHelp(to io.Writer, cmd *cobra.Command) {
	w := bufio.NewWriter(to)
	defer func() { _ = w.Flush() }()
	for i, p := range paragraphs(cmp.Or(cmd.Long, cmd.Short)) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, strings.Join(terminal.Fold(p, helpWidth), "\n"))
	}
	for _, s := range sections(cmd) {
		fmt.Fprintf(w, "\n%s:\n", s.title)
		if s.text != "" {
			fmt.Fprintln(w, s.text)
		}
		column := 0
		for _, i := range s.items {
			column = max(column, len(i.name)+2)
		}
		for _, i := range s.items {
			lines := terminal.Fold(i.text, helpWidth-2-column)
			fmt.Fprintf(w, "  %-*s%s\n", column, i.name, lines[0])
			for _, l := range lines[1:] {
				fmt.Fprintf(w, "  %*s%s\n", column, "", l)
			}
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help tells more of a command.\n", cmd.CommandPath())
	}
}

// paragraphs splits a text at its empty lines.
func paragraphs(text string) []string { return strings.Split(strings.TrimSpace(text), "\n\n") }

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page for each command into a folder",
		Args:   takes(1, 1),
		Hidden: true, // it is for packages
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeMan(args[0], cmd.Root())
		},
	}
}

// writeMan writes the page of cmd, and those of the commands below it.
func writeMan(dir string, cmd *cobra.Command) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	page := []byte(manPage(name, cmd))
	if err := os.WriteFile(filepath.Join(dir, name+".1"), page, 0o644); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			if err := writeMan(dir, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// manPage is the help of cmd for man(1).
func manPage(name string, cmd *cobra.Command) string {
	var b strings.Builder
	all := sections(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" %q\n.nh\n.SH NAME\n%s \\- %s\n"+
		".SH SYNOPSIS\n.nf\n%s\n.fi\n.SH DESCRIPTION\n",
		roff(strings.ToUpper(name)), "holdfast "+cmd.Root().Version, roff(name), roff(cmd.Short),
		roff(strings.TrimSpace(all[0].text)))
	for _, p := range paragraphs(cmp.Or(cmd.Long, cmd.Short)) {
		fmt.Fprintf(&b, ".PP\n%s\n", roff(p))
	}
	for _, s := range all[1:] {
		// Behind it is an example, which is to stay as it is.
		title, _, _ := strings.Cut(s.title, "(")
		fmt.Fprintf(&b, ".SH %s\n", roff(strings.ToUpper(title)+s.title[len(title):]))
		if s.text != "" {
			fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(s.text))
		}
		for _, i := range s.items {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(strings.TrimSpace(i.name)), roff(i.text))
		}
	}
	var others []string
	for _, c := range append(slices.Clone(cmd.Commands()), cmd.Parent()) {
		if c != nil && (c == cmd.Parent() || c.IsAvailableCommand()) {
			page := strings.ReplaceAll(c.CommandPath(), " ", "-")
			others = append(others, fmt.Sprintf(".BR %s (1)", roff(page)))
		}
	}
	if others != nil {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(others, " ,\n"))
	}
	return b.String()
}

// roff is text in which nothing is a request, in ASCII.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	noRequest := strings.NewReplacer("\n.", "\n\\&.", "\n'", "\n\\&'")
	text = strings.TrimPrefix(noRequest.Replace("\n"+text), "\n")
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}
