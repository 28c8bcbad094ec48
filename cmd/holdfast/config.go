package main

import (
	"context"
	"errors"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker/config"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, and print its schema",

		Example: "  holdfast config check holdfast.yaml",
	}
	withCommands(cmd)
	cmd.AddCommand(newConfigCheck(), newConfigSchema())
	return cmd
}

func newConfigCheck() *cobra.Command {
	var o common
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Show what a configuration comes to, and where each value is from",
		Long: `Reads FILE, the HOLDFAST_... variables and --backend as every program of holdfast
does, and prints each key with the value that would be used, where it is from, and which unset
variable left it to its default. All mistakes are reported at once (those of the store's URL when
there are no others), and the status is 2. No store is asked: "holdfast doctor" does that. URLs are
shown without user, password and query.`,
		Example: "  holdfast config check holdfast.yaml\n" +
			"  HOLDFAST_TTL=5s holdfast config check holdfast.yaml -o json |\n" +
			"    jq -r 'select(.default | not) | .key'",
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if o.config != "" {
					return usage("FILE and --config are the same; give one of them")
				}
				o.config = args[0]
			}
			f, err := o.load()
			if err != nil {
				return err
			}
			if err := o.wellFormed(cmd.Context(), f); err != nil {
				return err
			}
			return o.printSettings(cmd.OutOrStdout(), f)
		},
	}
	o.flags(cmd)
	cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"yaml", "yml", "json"},
		cobra.ShellCompDirectiveFilterFileExt)
	return cmd
}

// wellFormed has the store's package read its URL, if there is one, and no store asked.
func (o *common) wellFormed(ctx context.Context, f config.File) error {
	if f.Backend.IsZero() {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	b, _, err := openStore(ctx, f)
	if err == nil {
		return b.Close()
	}
	if errors.Is(err, backend.ErrInvalid) {
		return o.blame(err)
	}
	return nil // it would be tried
}

// from is where a setting came from.
func (o *common) from(s config.Setting) string {
	if s.Key == "backend" && o.backend != "" {
		return o.by()
	}
	return s.From()
}

func (o *common) printSettings(w io.Writer, f config.File) error {
	t := table{
		{cells: []string{"KEY"}, fold: true},
		{cells: []string{"VALUE"}, fold: true},
		{cells: []string{"FROM"}, fold: true},
	}
	for _, s := range f.Settings() {
		from := o.from(s)
		if o.output == "text" {
			if s.Key == "backend" && s.Default && runtime.GOOS == "linux" {
				s.Value = "none: it must be given, " +
					"but for commands that can use a folder of this machine"
			}
			for i, cell := range []string{s.Key, printable(s.Value), printable(from)} {
				t[i].cells = append(t[i].cells, cell)
			}
			continue
		}
		if err := printJSON(w, struct {
			Key     string `json:"key"`
			Value   string `json:"value"`
			Default bool   `json:"default"`
			From    string `json:"from"`
		}{s.Key, s.Value, s.Default, from}); err != nil {
			return err
		}
	}
	if o.output != "text" {
		return nil
	}
	return t.measured().fit(room()).print(w, "")
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Long: `Prints a JSON Schema (2020-12) of the configuration file, for editors and for checks
without holdfast. It takes what "holdfast config check" takes, but for what only the values together
or a store's URL can tell.`,
		Example: "  holdfast config schema > holdfast.schema.json\n" +
			"  # in holdfast.yaml: # yaml-language-server: $schema=holdfast.schema.json",
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema())
			return err
		},
	}
}
