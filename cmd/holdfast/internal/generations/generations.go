// Package generations runs the ways to lock with Redis that people have copied from each other,
// each in the scenario in which it fails, and holdfast in the same scenario beside it: the command
// holdfast generations.
package generations

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// ErrUnexpected is the error of a run in which an old way did not fail, or holdfast did not hold.
var ErrUnexpected = errors.New("not everything came as it is told")

// A Step is one line of a story: who does what, and what comes of it, "" if there is nothing to
// expect.
type Step struct {
	Who string `json:"who"`
	Did string `json:"did"`
	Got string `json:"got"`
}

// A Side is a scenario with one way to lock.
type Side struct {
	Steps      []Step `json:"steps"`
	AsExpected bool   `json:"as_expected"`

	// Outcome is of the whole, in a sentence; if not as expected, what was wrong.
	Outcome string `json:"outcome"`
}

// A Result is a scenario with both sides.
type Result struct {
	Number   int    `json:"number"`
	Title    string `json:"title"`
	Old      Side   `json:"old"`
	Holdfast Side   `json:"holdfast"`
}

// A scenario is a way to lock, with a story in which it fails, and the same story with holdfast.
type scenario struct {
	title, servers string
	old, holdfast  Side // as they are expected
}

// The scenarios in the order in which people got there, as the command prints them: a title, the
// servers, the steps of the old way and how it "fails:", those of holdfast and what "holds:". A
// step has who does it (- is nobody of them), and behind an arrow what comes of it. What a step
// does is in scene.go.
//
//go:embed stories.txt
var stories string

// parse reads scenarios.
func parse(text string) (all []scenario) {
	for story := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(story, "\n")
		sc := scenario{title: lines[0], servers: strings.TrimPrefix(lines[1], "on: ")}
		side := Side{AsExpected: true}
		for _, line := range lines[2:] {
			if out, ok := strings.CutPrefix(line, "fails: "); ok {
				side.Outcome = out
				sc.old, side = side, Side{AsExpected: true}
			} else if out, ok := strings.CutPrefix(line, "holds: "); ok {
				side.Outcome = out
				sc.holdfast = side
			} else {
				who, what, _ := strings.Cut(line, "  ")
				did, got, _ := strings.Cut(what, " → ")
				side.Steps = append(side.Steps, Step{strings.Trim(who, "-"), did, got})
			}
		}
		all = append(all, sc)
	}
	return all
}

const long = `The ways to lock with Redis that people have copied from each other, one after the
other, each in the scenario in which it fails, on a real Redis. Beside it holdfast in the same
scenario.

Keys and times of the old ways are those of the texts that taught them. Nobody waits for 100
seconds: where a lease is over, "PEXPIRE key 0" ends it, which is what Redis does then. The leases
of holdfast are waited for. A crash is a client whose renewals and releases arrive no more.

Redis servers are started on free ports, and stopped; redis-server must be in PATH. With --backend
the first six scenarios run on that server: they refuse to touch keys that are there already, and
delete their own. The last two always start their own. HOLDFAST_BACKEND is not looked at.

Exit status: 0 everything came as it is told, 1 it did not, or a server could not be started, 2
wrong usage.`

// options are the flags.
type options struct {
	backend, output string
	ttl             time.Duration
}

// Command returns the command generations.
func Command() *cobra.Command {
	o := options{ttl: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "generations",
		Short: "See how the old ways to lock with Redis fail, and holdfast not",
		Long:  long,

		Example: "  holdfast generations",

		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.backend, "backend", "",
		"redis://host:6379 for the first six, instead of a server that is started for them")
	f.StringVarP(&o.output, "output", "o", "text",
		"text, or json: one object per line, for each scenario")
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("backend",
		cobra.FixedCompletions([]string{"redis://", "rediss://"},
			cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func run(ctx context.Context, out io.Writer, o options) error {
	if o.output != "text" && o.output != "json" {
		return &backend.InvalidError{
			Field: "--output", Value: o.output,
			Reason: "is neither text nor json",
		}
	}
	var server *redis.Options
	if o.backend != "" {
		var err error
		if server, err = oneServer(o.backend); err != nil {
			return err
		}
	}
	if err := testserver.CanStartRedis(); err != nil {
		return fmt.Errorf("%w: install Redis 7 or later (Debian: apt-get install redis-server; "+
			"macOS: brew install redis)", err)
	}
	return testserver.Hosted(func(t testing.TB) error {
		st := &stage{t: t, ttl: o.ttl, server: server, url: o.backend}
		if server == nil {
			srv := testserver.Redis(t)
			st.server, st.url = &redis.Options{Addr: srv.Addr()}, srv.URL()
		}
		return st.all(ctx, out, o.output == "json", parse(stories))
	})
}

// oneServer is how go-redis reaches the server of rawURL. Sentinel, clusters and holdfast's own
// parameters are not for the old ways.
func oneServer(rawURL string) (*redis.Options, error) {
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("--backend: %w", err)
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil || u.RawQuery != "" { // what is wrong would quote the URL
		return nil, &backend.InvalidError{
			Field: "--backend", Value: backend.Redact(rawURL),
			Reason: "must be one Redis server, as in redis://host:6379/0",
		}
	}
	return o, nil
}

// all plays the scenarios one after the other, and prints each as it goes.
func (st *stage) all(ctx context.Context, out io.Writer, asJSON bool, scenarios []scenario) error {
	unexpected := false
	for i, sc := range scenarios {
		r := Result{Number: i + 1, Title: sc.title}
		tell := func(format string, a ...any) {
			if !asJSON {
				fmt.Fprintf(out, format+"\n", a...)
			}
		}
		tell("%d. %s\n", r.Number, r.Title)
		r.Old = st.play(ctx, sc.servers, sc.old, tell)
		if err := ctx.Err(); err != nil {
			return err
		}
		tell("   %s %s\n", verdict("fails:", r.Old), r.Old.Outcome)
		tell("   holdfast:")
		r.Holdfast = st.play(ctx, sc.servers, sc.holdfast, tell)
		if err := ctx.Err(); err != nil {
			return err
		}
		tell("   %s %s\n", verdict("holds:", r.Holdfast), r.Holdfast.Outcome)
		unexpected = unexpected || !r.Old.AsExpected || !r.Holdfast.AsExpected
		if asJSON {
			e := json.NewEncoder(out)
			e.SetEscapeHTML(false)
			if err := e.Encode(r); err != nil {
				return err
			}
		}
	}
	if unexpected {
		return ErrUnexpected
	}
	return nil
}

func verdict(as string, s Side) string {
	if s.AsExpected {
		return as
	}
	return "UNEXPECTED:"
}
