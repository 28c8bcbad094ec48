package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
	"github.com/holdfast-go/holdfast/waiting"
)

// common are the flags of the commands that look at a store.
type common struct {
	backend, config, output string
	quiet                   bool

	argument bool           // backend is the argument URL, and not --backend
	alone    bool           // the command is of use to one process, in its memory too
	outlives bool           // the hold is to outlive the process that takes it
	within   *time.Duration // how long a store may take to be up, if the flag is given
	argv     []string       // CMD and its arguments, of a command that runs one

	set *pflag.FlagSet // nil if the command has other flags
}

func (o *common) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	o.set = f
	f.StringVar(&o.backend, "backend", "",
		"URL of the store that keeps the locks, such as redis://host:6379,\n"+
			"or file:///var/lock/app for the processes of this machine\n"+
			"(default: $HOLDFAST_BACKEND, else the configuration's; "+
			"else on Linux, but not for doctor and bench,\n"+
			"a folder for this user's processes on this machine, "+
			"/var/lock/holdfast-UID or /tmp/holdfast-UID)")
	f.StringVar(&o.config, "config", "",
		"configuration file, YAML or JSON; HOLDFAST_... variables win over it, and flags over both")
	f.StringVarP(&o.output, "output", "o", "text", "text, or json: one object per line")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing but what was asked for, and errors")
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("backend", completeSchemes)
}

var completeSchemes = cobra.FixedCompletions([]string{
	"file:///", "redis://", "rediss://", "redis+unix://", "rueidis://", "rueidiss://",
	"rueidis+unix://", "etcd://", "etcds://", "etcd+unix://", "postgres://", "redlock://",
}, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp)

var noStore = usage("no store is named: " +
	"give --backend URL, such as redis://localhost:6379 or file:///tmp/locks, " +
	"or set HOLDFAST_BACKEND")

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
	for _, name := range []string{"backend", "config"} {
		if o.set == nil {
			break
		}
		// It is of a variable that is not set, and locks would be elsewhere. safeguard: empty-flag
		if flag := o.set.Lookup(name); flag.Changed && flag.Value.String() == "" {
			return f, usage("--%s is empty", name)
		}
	}
	if f, err = config.Load(o.config); err == nil && o.backend != "" {
		if f.Backend, err = config.ParseURL(o.backend); err != nil {
			err = fmt.Errorf("%s: %w", o.by(), err)
		}
	}
	return f, err
}

// by is what o.backend was given by.
func (o *common) by() string {
	if o.argument {
		return "URL"
	}
	return "--backend"
}

// blame is an error of [config.File.Open] with the place that the store's URL is from.
func (o *common) blame(err error) error {
	var problem *config.Error // which names a variable or a place in the file
	if o.backend != "" && errors.As(err, &problem) && problem.Key == "backend" {
		return fmt.Errorf("%s: %w", o.by(), problem.Err)
	}
	return err
}

// blameTTL is an error of [locker.New] with the place that the TTL is from, if the store cannot
// keep that.
func (o *common) blameTTL(f config.File, ttl time.Duration, err error) error {
	var invalid *backend.InvalidError
	switch {
	case !errors.As(err, &invalid) || invalid.Field != "ttl":
		return err
	case ttl != f.Locker.TTL: // safeguard: ttl-from
		return fmt.Errorf("--ttl: %w", invalid)
	}
	return fmt.Errorf("%s: %w", o.source(f, "ttl"), invalid)
}

// source is where the value of key is from.
func (o *common) source(f config.File, key string) string {
	all := f.Settings()
	return o.from(all[slices.IndexFunc(all, func(s config.Setting) bool { return s.Key == key })])
}

// open opens the store that the flags and the configuration name. adjust, which may be nil, changes
// how locks are taken.
func (o *common) open(ctx context.Context, adjust func(*locker.Config)) (*client, error) {
	f, err := o.load()
	if err != nil {
		return nil, err
	}
	switch {
	case f.Backend.IsZero() && o.outlives:
		return nil, usage("a ticket needs a store that is named: " +
			"give --backend URL, such as redis://localhost:6379, or set HOLDFAST_BACKEND")
	case f.Backend.IsZero():
		if f.Backend, err = o.own(); err != nil {
			return nil, err
		}
	}
	if o.outlives {
		if why := noTickets[schemeOf(f.Backend)]; why != "" { // safeguard: ticket-process
			return nil, o.refuseTickets(f, why)
		}
	}
	if !o.alone && inMemory(f.Backend.Reveal()) { // safeguard: between-processes
		// Safety: two runs of the command would both be granted the lock, each in its own memory.
		err := fmt.Errorf("mem:// (from %s) locks nothing between processes: name another store, "+
			"such as file:///tmp/locks for those of this machine, or redis://host:6379",
			o.source(f, "backend"))
		return nil, &exitError{status: exitUsage, err: err, complete: true}
	}
	c := &client{url: f.Backend, where: f.Backend.String()}
	if c.backend, c.config, err = o.reach(ctx, f); err != nil {
		if errors.Is(err, backend.ErrInvalid) {
			return nil, o.blame(err)
		}
		return nil, exit(exitStore, "%w\n%s", err, adviceOn(err, o.source(f, "backend")))
	}
	// safeguard: ticket-store
	if err := c.backend.Capabilities().Missing(ticketNeeds); o.outlives && err != nil {
		return nil, errors.Join(o.refuseTickets(f, err.Error()), c.backend.Close())
	}
	c.config.Logger = slog.New(slog.DiscardHandler) // what it would say, the command says
	if adjust != nil {
		adjust(&c.config)
	}
	if c.Client, err = locker.New(c.backend, locker.Bare, c.config); err != nil {
		_ = c.backend.Close()
		return nil, o.blameTTL(f, c.config.TTL, err)
	}
	return c, nil
}

// ticketNeeds is what a store needs for a ticket: a hold with a name of its own, which can be told
// from others.
var ticketNeeds = backend.Capabilities{Reentrant: true, Fencing: true, Inspect: true}

// noTickets are the stores that have no tickets, whatever else their URLs say.
var noTickets = map[string]string{
	"file":    "where a hold ends with the process that took it",
	"mem":     "where a hold ends with the process that took it",
	"redlock": "which has no re-entrant locks",
}

func (o *common) refuseTickets(f config.File, why string) error {
	err := fmt.Errorf("tickets are not to be had on %s (from %s), %s: "+
		"name another store, such as redis://host:6379 or etcd://host:2379",
		f.Backend, o.source(f, "backend"), why)
	return &exitError{status: exitUsage, err: err, complete: true}
}

// reach is openStore. A store that is not up yet is tried again for as long as the flags say.
func (o *common) reach(ctx context.Context, f config.File) (backend.Backend, locker.Config, error) {
	began := time.Now()
	b, cfg, err := openStore(ctx, f) // which may take its time, where --wait is short
	if o.within == nil || *o.within <= 0 || !errors.Is(err, backend.ErrUnavailable) {
		return b, cfg, err
	}
	o.note("holdfast: waiting, %v", err)
	limited, cancel := context.WithDeadline(ctx, began.Add(*o.within))
	defer cancel()
	retry := waiting.NewBackoff(50*time.Millisecond, time.Second)
	for waiting.Pause(limited, retry.Next()) {
		b, cfg, again := openStore(limited, f)
		if limited.Err() == nil && !errors.Is(again, backend.ErrUnavailable) || again == nil {
			return b, cfg, again
		}
	}
	return nil, cfg, cmp.Or(ctx.Err(), err)
}

// left is what is left of the time that a command may wait, now that its store is open. It is
// enough to ask for a lock.
func left(limit time.Duration, began time.Time) time.Duration {
	return max(limit-time.Since(began), min(limit, time.Second))
}

// inMemory reports whether a store has its locks in the memory of one process. A quorum has them
// there with one such node: that grants to each process, and two of those can have a majority with
// one more node each.
func inMemory(rawURL string) bool {
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return false // which is an error elsewhere
	}
	return u.Scheme == "mem" ||
		u.Scheme == "redlock" && slices.ContainsFunc(u.Query()["node"], inMemory)
}

// own is the store of who names none, on standard error as well: a crontab that is copied to a
// second machine with nothing named would run its jobs on both.
func (o *common) own() (config.URL, error) {
	dir, err := ownFolder()
	switch {
	case errors.Is(err, errNoFolder):
		return config.URL{}, noStore
	case err != nil:
		return config.URL{}, exit(exitStore,
			"no store is named, and the folder for that case cannot be used: %s; "+
				"give --backend URL, or set HOLDFAST_BACKEND", reason(err))
	}
	names := "--backend names another"
	for _, arg := range o.argv {
		// safeguard: flag-behind-command
		if flag, _, _ := strings.Cut(arg, "="); flag == "--backend" || flag == "--config" {
			names = fmt.Sprintf("the %s behind %s is that command's, "+
				"and holdfast's belongs in front of it", flag, printable(o.argv[0]))
		}
	}
	o.note("holdfast: no store is named: "+
		"the locks are this user's on this machine alone, in %s; %s", dir, names)
	return fileURL(dir)
}

// failure is err, of a request, with the status of a store that cannot be reached or refuses.
func (c *client) failure(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, backend.ErrInvalid):
		return err
	case backend.AnswerOf(err) == backend.Unknown, errors.Is(err, backend.ErrUnavailable),
		errors.Is(err, backend.ErrDenied), errors.Is(err, backend.ErrUnsafe),
		errors.Is(err, errors.ErrUnsupported):
		err = &storeError{Store: c.url, Err: err}
	}
	return &exitError{status: exitStore, err: err}
}

// can refuses flags that ask for what the store cannot do.
func (r *runner) can(c *client) error {
	for _, ask := range []struct {
		flag string
		set  bool
		need backend.Capabilities
	}{
		{"--shared", r.shared, backend.Capabilities{Shared: true}},
		{"--permits", r.permits > 0, backend.Capabilities{Permit: true}},
		{"--weight", r.weight > 1, backend.Capabilities{Weight: true}},
		{"--once-per", r.oncePer > 0, backend.Capabilities{NotBefore: true}},
	} {
		if err := c.backend.Capabilities().Missing(ask.need); ask.set && err != nil {
			err = fmt.Errorf("%s is not to be had on %s (%w): "+
				"leave it out, or name a store that has it, "+
				"redis://, rueidis://, etcd:// or file://, without dialect= and layout=",
				ask.flag, c.where, err)
			return &exitError{status: exitUsage, err: err, complete: true}
		}
	}
	return nil
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
	of       death
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func exit(status int, format string, args ...any) error {
	return &exitError{status: status, err: fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return exit(exitUsage, format, args...) }

// keyArg refuses a key that no store takes, before one is asked.
func keyArg(args []string) (string, error) {
	if err := backend.ValidateKey(args[0]); err != nil {
		return "", fmt.Errorf("KEY: %w", err)
	}
	return args[0], nil
}

// printJSON prints one object on a line of its own. What a terminal would not show as it is, such
// as control characters and those that turn the direction of text, is escaped.
func printJSON(w io.Writer, v any) error {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, escape(strings.TrimSuffix(line.String(), "\n"))+"\n")
	return err
}

// escape writes each character that is not to be shown on a terminal as JSON escapes it.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// paint is for text on a terminal, unless --no-color or NO_COLOR is given.
func (o *common) paint(cmd *cobra.Command) terminal.Paint {
	not, err := cmd.Flags().GetBool(noColor)
	return terminal.Colours(!not && err == nil && o.output == "text")
}

// note tells people something that is not the command's result.
func (o *common) note(format string, args ...any) {
	if !o.quiet {
		warn(format, args...)
	}
}

// warn tells people of an error that does not end the command.
func warn(format string, args ...any) {
	fmt.Fprintln(os.Stderr, escape(fmt.Sprintf(format, args...)))
}

// A noteFlag is why a lock is wanted. It takes what locker.Note does.
type noteFlag string

func (n *noteFlag) flag(f *pflag.FlagSet) {
	f.Var(n, "note", "say why to whoever waits for the lock or looks who holds it")
}

func (n *noteFlag) String() string { return string(*n) }

func (n *noteFlag) Type() string { return "string" }

func (n *noteFlag) Set(text string) error {
	switch {
	case len(text) > backend.MaxNote:
		return fmt.Errorf("has %d bytes, over %d", len(text), backend.MaxNote)
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	}
	*n = noteFlag(text)
	return nil
}

// who names a holder or a waiter, and says why it is one.
func who(m backend.Meta) string { return noted(name(m), m) }

// noted is text of a holder or a waiter, and why it is one.
func noted(text string, m backend.Meta) string {
	if m.Note == "" {
		return text
	}
	return text + ": " + printable(m.Note)
}

// name names a holder or a waiter.
func name(m backend.Meta) string {
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
	text := d.Round(time.Second).String()
	for _, zero := range []string{"m0s", "h0m"} { // safeguard: round-durations
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	return text
}

// printable is text from elsewhere as a terminal may be shown it.
func printable(s string) string {
	hidden := func(r rune) bool { return !strconv.IsPrint(r) }
	if !utf8.ValidString(s) || strings.ContainsFunc(s, hidden) {
		return strconv.Quote(s)
	}
	return s
}
