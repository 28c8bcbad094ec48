package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/opening"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
)

// common are the flags of the commands that look at a store.
type common struct {
	backend, config, output string
	quiet                   bool
}

func (o *common) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.backend, "backend", "", "URL of the store that keeps the locks, such as redis://host:6379,\n"+
		"or file:///var/lock/app for the processes of this machine\n"+
		"(default: $HOLDFAST_BACKEND, else the configuration's; else on Linux, but not for doctor and bench,\n"+
		"a folder for this user's processes on this machine, /var/lock/holdfast-UID or /tmp/holdfast-UID)")
	f.StringVar(&o.config, "config", "", "configuration file, YAML or JSON; HOLDFAST_... variables win over it, and flags over both")
	f.StringVarP(&o.output, "output", "o", "text", "text, or json: one object per line")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing but what was asked for, and errors")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("backend", completeSchemes)
}

var completeSchemes = cobra.FixedCompletions([]string{
	"file:///", "redis://", "rediss://", "redis+unix://", "rueidis://", "rueidiss://", "rueidis+unix://", "etcd://", "etcds://", "etcd+unix://", "redlock://",
}, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp)

var noStore = usage("no store is named: give --backend URL, such as redis://localhost:6379 or file:///tmp/locks, or set HOLDFAST_BACKEND")

// A client is an open store.
type client struct {
	*locker.Client[struct{}]
	backend backend.Backend
	config  locker.Config
	url     config.URL
	where   string // url, without secrets
}

// load reads the configuration that the flags name.
func (o *common) load() (f config.File, err error) {
	if o.output != "text" && o.output != "json" {
		return f, usage("--output %q is neither text nor json", o.output)
	}
	if f, err = config.Load(o.config); err == nil && o.backend != "" {
		if f.Backend, err = config.ParseURL(o.backend); err != nil {
			err = fmt.Errorf("--backend: %w", err)
		}
	}
	return f, err
}

// open opens the store that the flags and the configuration name. adjust, which may be nil, changes
// how locks are taken.
func (o *common) open(ctx context.Context, adjust func(*locker.Config)) (*client, error) {
	f, err := o.load()
	if err != nil {
		return nil, err
	}
	if f.Backend.IsZero() {
		if f.Backend, err = o.own(); err != nil {
			return nil, err
		}
	}
	c := &client{url: f.Backend, where: f.Backend.String()}
	if c.backend, c.config, err = opening.Open(ctx, f); err != nil {
		if errors.Is(err, backend.ErrInvalid) {
			return nil, err
		}
		return nil, &exitError{status: exitStore, err: fmt.Errorf("%w\n%s", err, o.advice(f, err))}
	}
	c.config.Logger = slog.New(slog.DiscardHandler) // what it would say, the command says
	if adjust != nil {
		adjust(&c.config)
	}
	if c.Client, err = locker.New(c.backend, locker.Bare, c.config); err != nil {
		_ = c.backend.Close()
		return nil, err
	}
	return c, nil
}

// advice is what to do about a store that cannot be opened.
func (o *common) advice(f config.File, err error) string {
	var named string
	for _, s := range f.Settings() {
		if s.Key == "backend" {
			named = o.from(s)
		}
	}
	switch {
	case errors.Is(err, backend.ErrDenied):
		return "look at the user and the password that " + named + " gives, " +
			"and at what that user may do"
	case errors.Is(err, backend.ErrUnsafe), errors.Is(err, errors.ErrUnsupported):
		return remedy(err)
	case strings.HasPrefix(f.Backend.String(), "file:"):
		return "see that this user may use it; --backend names another"
	}
	return "see that it is up, and is where " + named + " says"
}

// own is the store of who names none, on standard error as well: a crontab that is copied to a
// second machine with nothing named would run its jobs on both.
func (o *common) own() (config.URL, error) {
	dir, err := opening.OwnFolder()
	switch {
	case errors.Is(err, opening.ErrNoFolder):
		return config.URL{}, noStore
	case err != nil:
		return config.URL{}, &exitError{status: exitStore, err: fmt.Errorf("no store is named, and the folder for that case cannot be used: %s; "+
			"give --backend URL, or set HOLDFAST_BACKEND", opening.Reason(err))}
	}
	o.note("holdfast: no store is named: the locks are this user's on this machine alone, in %s; --backend names another", dir)
	return opening.FileURL(dir)
}

// failure is err, of a request, with the status of a store that cannot be reached or refuses.
func (c *client) failure(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, backend.ErrInvalid):
		return err
	case backend.AnswerOf(err) == backend.Unknown, errors.Is(err, backend.ErrUnavailable),
		errors.Is(err, backend.ErrDenied), errors.Is(err, backend.ErrUnsafe),
		errors.Is(err, errors.ErrUnsupported):
		err = &opening.Error{Store: c.url, Err: err}
	}
	return &exitError{status: exitStore, err: err}
}

// close gives the store a second to take the last release. What it does not take runs out by
// itself.
func (c *client) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return errors.Join(c.Shutdown(ctx), c.backend.Close())
}

// An exitError has a status of its own.
type exitError struct {
	status   int
	err      error
	complete bool // err says itself what to do
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{status: exitUsage, err: fmt.Errorf(format, args...)}
}

// keyArg refuses a key that no store takes, before one is asked.
func keyArg(args []string) (string, error) {
	if err := backend.ValidateKey(args[0]); err != nil {
		return "", fmt.Errorf("KEY: %w", err)
	}
	return args[0], nil
}

// printJSON prints one object on a line of its own.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// note tells people something that is not the command's result.
func (o *common) note(format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// who names a holder or a waiter.
func who(m backend.Meta) string {
	name := m.Service
	if name == "" {
		name = "somebody"
	}
	if m.Host != "" {
		name += "@" + m.Host
	}
	if m.PID != 0 {
		name += fmt.Sprintf(" (pid %d)", m.PID)
	}
	return printable(name)
}

// since is how long ago t was, by this machine's clock; 0 if t is unknown, or if the other's clock
// is ahead.
func since(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(time.Since(t), 0)
}

// ago prints a duration as people say it.
func ago(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// printable is text from elsewhere as a terminal may be shown it.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
