package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/generations"
	"github.com/holdfast-go/holdfast/cmd/internal/demo"
)

// The exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1   // it was tried and did not work
	exitUsage       = 2   // it was not tried: wrong flags, URL or configuration
	exitNotAcquired = 75  // run, leader, wait: the lock was not to be had in time
	exitLost        = 76  // run, leader: the lock was lost while the command ran
	exitStore       = 77  // the store could not be reached, or refused
	exitInterrupted = 130 // by Ctrl-C
)

const exitHelp = `Exit status: 0 done, 1 failed, 2 wrong usage, 75 not acquired in time, 76 lost
while CMD ran, 77 store unreachable or refusing, 126 and 127 CMD cannot be run, else CMD's own; 128
and the signal's number if one ended CMD, or holdfast before CMD ran: 130 for Ctrl-C.`

// run runs the command line, and returns the exit status and the signal that is its reason, if one
// is.
func run(ctx context.Context, args []string) (status int, of death) {
	began := false
	root := newRoot()
	// If this is called, flags and arguments were understood.
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK, death{}
	}
	var exit *exitError
	has := errors.As(err, &exit)
	if has && exit.err == nil { // it has been said, or is another program's to say
		return exit.status, exit.of
	}
	// A store that was not waited for has not failed. A lock that is lost is lost all the same.
	interrupted := ctx.Err() != nil && errors.Is(err, context.Canceled) &&
		(!has || exit.status == exitStore)
	text := err.Error()
	if interrupted {
		text = demo.ErrInterrupted.Error() // not what it was about to do
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "holdfast: "); line != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", cmd.CommandPath(), escape(line))
		}
	}
	switch {
	case interrupted, errors.Is(err, demo.ErrInterrupted):
		return interruptedBy(ctx)
	case has && (exit.status != exitUsage || exit.complete):
		return exit.status, death{}
	case !began, has, errors.Is(err, demo.ErrUsage), errors.Is(err, backend.ErrInvalid),
		errors.Is(err, os.ErrNotExist):
		fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
		return exitUsage, death{}
	}
	return exitFailed, death{}
}

// interruptedBy is the end of a run whose ctx a signal has ended.
func interruptedBy(ctx context.Context) (status int, of death) {
	var by interruption
	if errors.As(context.Cause(ctx), &by) {
		if s, ok := by.Signal.(syscall.Signal); ok {
			return 128 + int(s), death{of: s}
		}
	}
	return exitInterrupted, death{}
}

const noColor = "no-color"

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "holdfast",
		Short:         "Distributed locks that say when they are lost",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Version = version()
	withCommands(root)
	root.PersistentFlags().Bool(noColor, false,
		"print no colours; there are none either where $NO_COLOR is not empty,\n"+
			"in a pipe, and in JSON")
	root.SetVersionTemplate("holdfast {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return demo.FlagError(err) })
	root.AddCommand(
		newRun(), newLeader(), newInspect(), newList(), newTop(), newWatch(), newWait(),
		newAcquire(), newRenew(), newCheck(), newRelease(), newDoctor(), newBench(), newConfig(),
		newDemo(), newDemoWorker(), newDeadman(), generations.Command(), newVersion(), newMan(),
	)
	inGroups(root)
	withDefaults(root)
	return root
}

// withDefaults adds what cobra adds to a command line, and has a command that says nothing of
// arguments take none.
func withDefaults(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch {
		case cmd.Name() == "completion":
			withCommands(cmd)
		case cmd.Name() == "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				topic, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 { // safeguard: help-of-nothing
					err = unknown(topic, rest[0])
				}
				return err
			}
		case cmd.Args == nil:
			cmd.Args = takes(0, 0)
		}
	}
}

// takes has a command take so many arguments.
func takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch n := len(args); {
		case n < least:
			return usage("an argument is missing: it is %s", cmd.UseLine())
		case n > most: // safeguard: too-many-arguments
			return usage("%q is too much: it is %s", args[most], cmd.UseLine())
		}
		return nil
	}
}

// withCommands has a command that does nothing itself show its help, and tell in one line of a
// command that it does not have.
func withCommands(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknown(cmd, args[0])
	}
}

// unknown is the error of a command that cmd does not have.
func unknown(cmd *cobra.Command, name string) error {
	next := fmt.Sprintf("%s --help lists them", cmd.CommandPath())
	if meant := cmd.SuggestionsFor(name); len(meant) > 0 {
		next = "did you mean " + strings.Join(meant, " or ") + "?"
	}
	return &exitError{
		status: exitUsage, err: fmt.Errorf("unknown command %q; %s", name, next),
		complete: true,
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",

		Example: "  holdfast version",
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "holdfast %s %s %s/%s\n", version(), runtime.Version(),
				runtime.GOOS, runtime.GOARCH)
		},
	}
}

// released is the version of a binary in the archives of a release, which the linker sets
// (.goreleaser.yaml). They are built from the commit whose tag is the library's; that of the
// command's module comes after it.
var released string

// version is the release's, the module's, or the commit it was built from, as far as the build
// recorded one.
func version() string {
	if released != "" {
		return released
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "(devel)"
}
