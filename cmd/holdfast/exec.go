package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
)

// A runner runs a command under a lock.
type runner struct {
	common
	wait, ttl, maxHold, killAfter, oncePer time.Duration
	noWait, shared, lead, onSuccess        bool
	permits, weight, conflict              int
	why                                    noteFlag

	trace    *runTracer
	renewals renewals
	over     time.Time // when CMD ended
}

// What CMD finds in its environment.
const (
	envKey   = "HOLDFAST_KEY"
	envToken = "HOLDFAST_TOKEN"
)

// releaseLimit is how long a store may take for a release, where nothing depends on it any more:
// CMD has ended, and the lease ends by itself.
const releaseLimit = 700 * time.Millisecond // safeguard: run-release-limit

const runLong = `Waits for the lock, runs CMD while it is held, and releases it when CMD ends.
The first word behind KEY that is no flag of holdfast's begins CMD, and all that
follows is CMD's; -- in front of CMD may be left out.

If the lock is lost (the store is away for too long, or somebody released it),
CMD's process group gets TERM, and KILL after --kill-after, in any case before
the lease can have ended, so that CMD does not work beside the next holder. It
is also killed when holdfast is, and before the lease ends if holdfast is stopped,
as with Ctrl-Z. What CMD leaves behind in the background lives on.

Ctrl-C and what is sent to holdfast (TERM, INT, HUP, QUIT, USR1, USR2) reach CMD,
and CMD has the terminal when it asks for it. If Ctrl-C ends CMD, or holdfast as
it waits, the script or the loop around it ends too.

A release that the store does not confirm within a second is given up, and a
note says so: the lock is free when its lease ends. With --once-per it is tried
for as long as a TTL, 30s at most, as it is what makes the run count.

CMD finds HOLDFAST_KEY and HOLDFAST_TOKEN in its environment: a resource that
remembers the highest token it has seen can refuse a CMD that comes too late. A
"holdfast run" of the same key below CMD would wait for itself, and fails with
75. CMD also finds a TRACEPARENT if holdfast has one, or sends traces: run makes
spans if OTEL_EXPORTER_OTLP_ENDPOINT or the configuration names a collector.

With --once-per, CMD is not run, and the status is 0, if it was run less than
that ago, counted from the beginning of that run by the store's clock. Who comes
while it runs waits, and does not run it again, however long it took; or with
--no-wait exits with 75. A run counts however CMD ends, also if it fails; with
--on-success only if its status is 0, and else whoever waits runs it. One that
was cut off does not count: if the lock is lost, --max-hold is over, or the
machine crashes in the middle, another may run CMD in the same period, a TTL
later at most; the two have different tokens. Give less than the period of a
schedule, such as 18h for a daily job, so that a clock that is a little early
skips nothing.

` + exitHelp

func newRun() *cobra.Command {
	var r runner
	cmd := &cobra.Command{
		Use:   "run KEY [flags] [--] CMD [ARG...]",
		Short: "Run a command while holding a lock",
		Long:  runLong,
		Example: `  holdfast run report --backend redis://localhost:6379 ./report.sh
  # in a crontab of several machines:
  holdfast run report --no-wait -E 0 ./report.sh
  # the same, once a night even if it is quick:
  holdfast run nightly --once-per 18h ./nightly.sh
  holdfast run db --shared pg_dump shop
  holdfast run encode --permits 4 -- ffmpeg ...
  # 16 of 64 GB:
  holdfast run memory --permits 64 --weight 16 ./train.sh`,
		Args: r.split,
		RunE: r.run,
	}
	r.flags(cmd)
	f := cmd.Flags()
	f.IntVarP(&r.conflict, "conflict-exit-code", "E", exitNotAcquired,
		"the status if another holds the lock, with --no-wait, --wait or inside of a run")
	f.BoolVar(&r.noWait, "no-wait", false, "do not wait: exit with 75 if another holds it")
	f.BoolVar(&r.shared, "shared", false, "hold it together with others who do")
	f.IntVar(&r.permits, "permits", 0,
		"hold one of so many permits; all who use KEY must say the same")
	f.IntVar(&r.weight, "weight", 1,
		"hold so many of the permits; who needs more than are free waits, and is not overtaken")
	f.DurationVar(&r.oncePer, "once-per", 0,
		"do not run CMD if it was run less than this ago; see above")
	f.BoolVar(&r.onSuccess, "on-success", false,
		"with --once-per: a run counts only if its status is 0")
	return cmd
}

// split takes the flags between KEY and CMD, which pflag has stopped at, as KEY is no flag.
func (r *runner) split(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	if len(args) > 1 && f.ArgsLenAtDash() != 0 { // else there are none: -- is in front of KEY
		if err := f.Parse(args[1:]); err != nil {
			return cmd.FlagErrorFunc()(cmd, err)
		}
		if help, _ := f.GetBool("help"); help {
			return pflag.ErrHelp
		}
		args = append(args[:1:1], f.Args()...)
	}
	if least := map[bool]int{false: 2, true: 1}[r.lead]; len(args) < least {
		wants := map[bool]string{false: "a KEY and a CMD", true: "a KEY"}[r.lead]
		return fmt.Errorf("wants %s, as in: %s report ./report.sh", wants, cmd.CommandPath())
	}
	r.argv = args[1:]
	return nil
}

// complete completes KEY, and behind it flags, which cobra does not as they are not ahead of it.
// What CMD takes is files as far as it can tell.
func (r *runner) complete(cmd *cobra.Command, args []string,
	begun string,
) (names []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		return r.completeKeys(cmd, args, begun)
	}
	f := cmd.Flags()
	if err := f.Parse(args[1:]); err != nil || len(args) > 1 && f.NArg() > 0 ||
		!strings.HasPrefix(begun, "-") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	f.VisitAll(func(f *pflag.Flag) {
		if name := "--" + f.Name; strings.HasPrefix(name, begun) {
			names = append(names, name)
		}
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

func newLeader() *cobra.Command {
	r := runner{lead: true}
	cmd := &cobra.Command{
		Use:   "leader KEY [flags] [[--] CMD [ARG...]]",
		Short: "Show who leads, or run a command whenever this process leads",
		Long: `Without CMD it shows who holds KEY. With CMD it waits for KEY and runs CMD; when
the lock is lost, CMD is ended as by "holdfast run", and it waits again. It ends
when CMD ends by itself, with CMD's status. The first word behind KEY that is no
flag of holdfast's begins CMD, as with run.

` + exitHelp,
		Example: "  holdfast leader scheduler\n  holdfast leader scheduler ./scheduler",
		Args:    r.split,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(r.argv) == 0 {
				for _, flag := range []string{"note", "ttl", "max-hold", "kill-after"} {
					if cmd.Flags().Changed(flag) {
						return usage("--%s is for a CMD, "+
							"and without one who holds %s is only shown", flag, printable(args[0]))
					}
				}
				return r.withKey(cmd, args[:1], r.inspect)
			}
			return r.run(cmd, args)
		},
	}
	r.flags(cmd)
	return cmd
}

func (r *runner) flags(cmd *cobra.Command) {
	r.common.flags(cmd)
	r.within = &r.wait
	f := cmd.Flags()
	f.SetInterspersed(false) // see split
	f.DurationVar(&r.wait, "wait", 0,
		"how long to wait for the lock, and for a store that is not up yet\n"+
			"(default: until the lock is to be had, from a store that is up)")
	f.DurationVar(&r.ttl, "ttl", 0,
		"how long a crashed holder blocks others (default: the configuration's, else 30s)")
	f.DurationVar(&r.maxHold, "max-hold", 0,
		"end CMD, as if the lock were lost, when it has held for so long")
	r.why.flag(f)
	f.DurationVar(&r.killAfter, "kill-after", 10*time.Second,
		"how long CMD may take to end after TERM; at most a third of the TTL")
	cmd.ValidArgsFunction = r.complete
}

// check refuses flags that make no sense before anything is opened.
func (r *runner) check(cmd *cobra.Command) error {
	set := cmd.Flags().Changed
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"wait", r.wait},
		{"ttl", r.ttl},
		{"max-hold", r.maxHold},
		{"kill-after", r.killAfter},
		{"once-per", r.oncePer},
	} {
		if (set(f.name) || f.name == "kill-after") && f.d <= 0 {
			return usage("--%s %v is not positive", f.name, f.d)
		}
	}
	permits, weight := set("permits"), set("weight")
	for _, c := range []struct {
		wrong bool
		says  string
	}{
		{r.noWait && set("wait"), "--wait and --no-wait exclude each other"},
		{r.shared && permits, "--shared and --permits exclude each other"},
		{
			r.conflict < 0 || r.conflict > 255,
			fmt.Sprintf("--conflict-exit-code %d is not between 0 and 255", r.conflict),
		},
		{permits && r.permits < 1, fmt.Sprintf("--permits %d is not positive", r.permits)},
		{weight && !permits, "--weight is for --permits"},
		{
			weight && (r.weight < 1 || r.weight > r.permits),
			fmt.Sprintf("--weight %d is not between 1 and the %d of --permits",
				r.weight, r.permits),
		},
		{
			r.oncePer > 0 && (r.shared || permits),
			"--once-per is for a lock that one holds: not together with --shared or --permits",
		},
		{r.onSuccess && r.oncePer == 0, "--on-success is for --once-per"},
		{
			r.oncePer > backend.MaxNotBefore,
			fmt.Sprintf("--once-per %v is over %v", r.oncePer, backend.MaxNotBefore),
		},
	} {
		if c.wrong {
			return usage("%s", c.says)
		}
	}
	return nil
}

// checkTTL refuses a --ttl that is given, and is below least or more than any store takes.
func checkTTL(cmd *cobra.Command, ttl, least time.Duration) error {
	if err := backend.ValidateTTL(ttl, least); err != nil && cmd.Flags().Changed("ttl") {
		return fmt.Errorf("--ttl: %w", err)
	}
	return nil
}

func (r *runner) options() []locker.Option {
	opts := []locker.Option{locker.Note(string(r.why))}
	if r.shared {
		opts = append(opts, locker.Shared())
	}
	if r.permits > 0 {
		opts = append(opts, locker.Permit(r.permits), locker.Weight(r.weight))
	}
	if r.wait > 0 {
		opts = append(opts, locker.WaitLimit(r.wait))
	}
	if r.oncePer > 0 {
		// What the work in once returns says whether a run counts.
		opts = append(opts, locker.OnSuccess())
	}
	return opts
}

func (r *runner) run(cmd *cobra.Command, args []string) error {
	key, err := keyArg(args)
	if err := cmp.Or(r.check(cmd), checkTTL(cmd, r.ttl, 1), err); err != nil {
		return err
	}
	path, err := exec.LookPath(r.argv[0])
	if err != nil { // before the lock is taken
		return exit(cannotRun(err), "cannot run %s: %w", printable(r.argv[0]), errors.Unwrap(err))
	}
	f, err := r.load()
	switch {
	case err != nil:
		return err
	case r.oncePer > 0 && f.Backend.IsZero():
		return usage("--once-per needs a store that is named, " +
			"as it has to outlive a restart of the machine: " +
			"give --backend URL, such as file:///var/lib/locks, or set HOLDFAST_BACKEND")
	}
	ctx, tracer, err := startTrace(cmd.Context(), f, cmd.Name()+" "+filepath.Base(path))
	if err != nil {
		return err
	}
	r.trace = tracer
	err = r.traced(ctx, key, path)
	var refused *exitError
	if errors.As(err, &refused) && refused.status == exitNotAcquired && !r.lead &&
		refused.err != nil { // else it is CMD's status; safeguard: run-own-status
		refused.status = r.conflict
	}
	if unsent := r.trace.close(err); unsent != nil {
		r.note("holdfast: %v", unsent)
	}
	return err
}

// traced opens the store, and runs the command when the lock is held; to lead it does so again and
// again.
func (r *runner) traced(ctx context.Context, key, path string) error {
	teller, began := &waitTeller{key: key, o: &r.common}, time.Now()
	r.renewals.key, r.renewals.note = key, r.note
	c, err := r.open(ctx, func(cfg *locker.Config) {
		cfg.TTL = cmp.Or(r.ttl, cfg.TTL)
		cfg.MaxHold = cmp.Or(r.maxHold, cfg.MaxHold)
		// Those who wait are to know what runs, not by what.
		cfg.Service = cmp.Or(cfg.Service, os.Getenv("OTEL_SERVICE_NAME"), filepath.Base(path))
		if r.oncePer == 0 { // safeguard: run-counts-later
			cfg.ReleaseTimeout = cmp.Or(cfg.ReleaseTimeout, releaseLimit)
		}
		cfg.Observer = locker.Observers(r.trace.observer(), &r.renewals)
		if !r.quiet && !r.noWait {
			cfg.Observer = locker.Observers(cfg.Observer, teller)
		}
	})
	if err != nil {
		return err
	}
	defer r.closeStore(c)
	if err := r.can(c); err != nil {
		return err
	}
	if err := c.nested(ctx, key, !r.shared && r.permits == 0); err != nil {
		return err
	}
	teller.store, r.renewals.store = c.url, c.url
	full := r.wait
	if full > 0 {
		r.wait = left(full, began)
	}
	for {
		err = r.once(ctx, c, key, path)
		var ended *exitError
		if !r.lead || !errors.As(err, &ended) || ended.status != exitLost || ctx.Err() != nil {
			return err
		}
		if ended.err == nil { // the status is CMD's own; safeguard: leader-own-status
			return err
		}
		r.note("holdfast: %v; waiting to lead again", ended)
		r.wait = full // safeguard: leader-waits-anew
	}
}

// closeStore gives the store a moment for a release that it owes an answer to, or what is left of
// that since CMD ended. Then the process ends, and with it what a client would wait for.
func (r *runner) closeStore(c *client) {
	limit := releaseLimit
	if !r.over.IsZero() {
		limit -= time.Since(r.over)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = c.close() // what is not released is lost, or was never acquired, which is told
	}()
	select {
	case <-closed:
	case <-time.After(limit):
	}
}

// nested refuses a lock that the run holds which this process is part of, if one of the two is to
// have it alone: that run waits for its command to end, and the command would wait for the lock. If
// the store does not tell who holds, the answer is unknown, and an error too.
func (c *client) nested(ctx context.Context, key string, alone bool) error {
	token, err := strconv.ParseUint(os.Getenv(envToken), 10, 64)
	if err != nil || os.Getenv(envKey) != key {
		return nil
	}
	s, err := c.Inspect(ctx, key)
	if err != nil {
		return c.failure(err)
	}
	for _, h := range s.Holders {
		if h.Token == token && (alone || h.Mode == backend.Exclusive) { // safeguard: run-nested
			return exit(exitNotAcquired, "%s is held by the holdfast that runs this command, "+
				"token %d: it would wait for itself", printable(key), token)
		}
	}
	return nil
}

// A lock takes the lock in the way that the flags say, and keeps the guard, which locker.Do and
// locker.Once keep to themselves.
type lock struct {
	*client
	try   bool
	guard *locker.Guard[struct{}]
}

// Lock is Lock or TryLock of the client.
func (l *lock) Lock(ctx context.Context, key string,
	opts ...locker.Option,
) (g *locker.Guard[struct{}], err error) {
	take := l.client.Lock
	if l.try {
		take = l.TryLock
	}
	l.guard, err = take(ctx, key, opts...)
	return l.guard, err
}

// once takes the lock, runs the command and releases the lock.
func (r *runner) once(ctx context.Context, c *client, key, path string) error {
	var status int
	var of death
	var until time.Time
	var lost, failed, uncounted, err error
	ran, l := false, &lock{client: c, try: r.noWait}
	r.over = time.Time{}
	work := func(held context.Context, _ struct{}) error {
		ran = true
		status, of, lost, failed = r.under(l.guard, c, key, path, traceEnv(held))
		until, r.over = l.guard.Until(), time.Now()
		if r.onSuccess && status != 0 {
			uncounted = fmt.Errorf("status %d", status)
		}
		// Why the run does not count: it was cut off, never began, or failed.
		// safeguard: run-uncounted
		return cmp.Or(lost, failed, uncounted)
	}
	if r.oncePer > 0 {
		_, err = locker.Once(ctx, l, key, r.oncePer, work, r.options()...)
	} else {
		err = locker.Do(ctx, l, key, work, r.options()...)
	}
	switch { // once it ran, and was not cut off, err is Unlock's
	case !ran && err != nil:
		return c.notAcquired(ctx, key, err)
	case !ran:
		r.note("holdfast: %s: was run less than %v ago, or meanwhile, and is not run again",
			printable(key), r.oncePer)
		return nil
	case failed != nil:
		return failed
	case lost != nil:
		return exit(exitLost, "%s: %w; the command was ended", printable(key), lost)
	// It was lost while the command was ending. safeguard: run-lost-late
	case errors.Is(err, locker.ErrLost), errors.Is(err, locker.ErrMaxHold):
		return &exitError{status: exitLost, err: err}
	case errors.As(err, new(*locker.Error)):
		// The lease runs out by itself, and the command has done its work.
		r.note("holdfast: %s: %s", printable(key),
			unreleased(err, time.Until(until), r.oncePer > 0 && uncounted == nil))
	}
	if status != 0 {
		return &exitError{status: status, of: of}
	}
	return nil
}

// unreleased says what is known of a lock whose release failed with err, while so much was left of
// its lease. counts says that the release was to make a run count.
func unreleased(err error, left time.Duration, counts bool) string {
	free, why := "it is unknown whether the lock is free", err
	if backend.Refused(err) {
		free = "the lock is not free"
	}
	if counts {
		free += " and whether this run counts"
	}
	if detail := (*locker.Error)(nil); errors.As(err, &detail) {
		why = cmp.Or(errors.Unwrap(detail.Err), detail.Err)
	}
	return fmt.Sprintf("the store did not confirm the release: %s; the lease ends in about %s (%s)",
		free, ago(max(left, 0)), reason(why))
}

// notAcquired is a failed Lock with the status that it stands for.
func (c *client) notAcquired(ctx context.Context, key string, err error) error {
	var held *backend.HeldError
	switch {
	case ctx.Err() != nil, errors.Is(err, backend.ErrInvalid):
		return err
	case errors.As(err, &held):
		return exit(exitNotAcquired, "%s is held by %s", printable(key), holding(held.Holder, ""))
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, backend.ErrUnavailable):
		// It was held for as long as there was to wait.
		return exit(exitNotAcquired, "%s: not acquired in time, %w", printable(key),
			&storeError{Store: c.url, Err: err})
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, backend.ErrMismatch):
		return &exitError{status: exitNotAcquired, err: err}
	}
	return c.failure(err)
}

// holding says who holds, and for how long, then more, and why.
func holding(m backend.Meta, more string) string {
	by := name(m)
	if d := since(m.Since); d > 0 {
		by += " for " + ago(d)
	}
	return noted(by+more, m) // safeguard: note-last
}

// An ending is how a command ended.
type ending struct {
	status int
	signal syscall.Signal // that ended it; 0 for none
}

// killed is the status of a command that SIGKILL ended.
const killed = 128 + int(syscall.SIGKILL)

var errUnconfirmed = fmt.Errorf("%w: the store has not confirmed it for too long", locker.ErrLost)

// under runs the command under g. lost is why the lock ended before the command did.
func (r *runner) under(
	g *locker.Guard[struct{}], c *client, key, path string, env []string,
) (status int, of death, lost, err error) {
	// The child is killed when the thread that made it ends, so that is this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	hold := g.Hold()
	r.renewals.begin() // safeguard: run-anew
	env = append(append(os.Environ(), env...), envKey+"="+key,
		envToken+"="+strconv.FormatUint(hold.Token, 10))
	// The last of each, as most programs take the first: that of the run that this one is part of.
	env = (&exec.Cmd{Env: env}).Environ() // safeguard: run-env
	until := g.Until()
	grace := min(r.killAfter, time.Until(until)/3)
	p, err := start(path, r.argv, env, lastMoment(until, grace), signsOfLife(c.backend)...)
	var other *exitError
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, &other): // not because of CMD
		return 0, of, nil, err
	case err != nil:
		return 0, of, nil, exit(cannotRun(err), "cannot run %s: %w", printable(r.argv[0]), err)
	}
	w := &work{
		process: p, g: g, renewals: &r.renewals, note: r.note, grace: grace,
		watch: time.NewTimer(0), longest: time.NewTimer(c.config.MaxHold), late: time.NewTimer(0),
	}
	if w.late.Stop(); c.config.MaxHold == 0 {
		w.longest.Stop()
	}
	w.begin(until)
	status, of = w.finishes()
	return status, of, w.lost, nil
}

// A held is what is asked of the guard while the command is at work.
type held interface {
	Value() (struct{}, error)
	Lost() <-chan struct{}
	Until() time.Time
}

// work is a command at work under a guard.
type work struct {
	*process
	g        held
	renewals *renewals
	note     func(format string, args ...any)
	grace    time.Duration // how long the command has to end
	lost     error         // why the lock ended before the command; then the command is to end

	// When somebody else kills the command if we cannot, by bootClock as that one's.
	latest time.Duration
	alone  bool // nobody would, and people were told

	watch   *time.Timer // the next look
	longest *time.Timer // MaxHold
	late    *time.Timer // the command had its time to end
	over    time.Time   // when that is, or was
}

// begin looks for the first time. The lease lasts until then, also if it is lost by now.
func (w *work) begin(until time.Time) {
	w.promise(until) // of the command, whose number is known now; safeguard: run-first-promise
	w.look()
}

// finishes returns when the command has ended.
//
// The guard's context also ends with that of the run, which a signal ends; the command gets that
// signal itself.
func (w *work) finishes() (status int, of death) {
	defer func() {
		for _, t := range []*time.Timer{w.watch, w.longest, w.late} {
			t.Stop()
		}
	}()
	for over := w.g.Lost(); ; {
		select {
		case e := <-w.ended:
			return e.status, w.after(e)
		case s := <-w.signals:
			w.heed(s)
		case s := <-w.stopped:
			w.pause(s)
		case <-over:
			over = nil
			if w.lost != nil { // the lease has ended, and the command had its time
				w.kill()
			} else {
				w.end(cause(w.g), w.grace)
			}
		case <-w.longest.C: // more than the grace is left of the lease, else watch was first
			w.end(locker.ErrMaxHold, w.grace)
		case <-w.watch.C:
			w.look()
		case <-w.late.C:
			w.kill()
		}
	}
}

// look sees whether the lease was renewed: some times while it lasts, so that the promise is never
// old, and a grace before it ends.
func (w *work) look() {
	until, lost := w.good()
	left := time.Until(until)
	switch spare := left - w.grace; {
	case lost && bootClock() < w.latest: // the store says so; safeguard: run-lost-at-look
		// finishes hears of it next, and gives the command its time.
	case spare > 0 && !lost:
		w.promise(until)
		w.watch.Reset(min(spare, max(spare/2, w.grace/4)))
	default: // Renewals fail. The command gets the rest of the lease to end.
		w.end(cmp.Or(cause(w.g), w.renewals.missing()), max(left-left/10, 0))
	}
}

// good returns until when the lock is good, and whether it was lost, which is asked last: of a lock
// that was lost, until is the moment of that, and who took it for the end of a lease would kill the
// command at once.
func (w *work) good() (until time.Time, lost bool) {
	until = w.g.Until()
	select {
	case <-w.g.Lost():
		return until, true // safeguard: run-lost-within-look
	default:
		return until, false
	}
}

// lastMoment is when a command is killed, by bootClock, whose lock is good until then.
func lastMoment(until time.Time, grace time.Duration) time.Duration {
	now := bootClock() // read first: a pause between the two makes it early
	return now + time.Until(until) - grace/10
}

// promise has the command killed by somebody else if we cannot, at the time when we would.
func (w *work) promise(until time.Time) {
	w.latest = lastMoment(until, w.grace)
	if err := w.kills(w.latest); err != nil && !w.alone { // safeguard: run-alone
		w.alone = true
		w.note("holdfast: "+
			"the process that ends the command if holdfast is stopped is gone: %v", err)
	}
}

// end tells the command to end within a time. It is called once: what comes later must not change
// that.
func (w *work) end(why error, within time.Duration) {
	w.lost = why
	w.watch.Stop()
	w.longest.Stop() // safeguard: run-told-once
	w.signal(terminate)
	w.over = time.Now().Add(within)
	w.late.Reset(within)
}

// after is for a command that has ended.
func (w *work) after(e ending) (of death) {
	of = w.finish(e)
	if w.lost == nil { // else it has not done all its work under the lock
		// safeguard: run-cut-off-meanwhile
		if w.lost = cause(w.g); w.lost == nil && e.status == killed && bootClock() > w.latest {
			w.lost = w.renewals.missing() // in time, but not by us
		}
		w.over = time.Now()
	}
	if w.lost != nil { // safeguard: run-rest
		w.killRest(time.Until(w.over))
	}
	return of
}

// pause is for a command that has stopped by s.
func (w *work) pause(s syscall.Signal) {
	lent := w.lend(s)
	until, lost := w.good()
	if lent || lost || w.lost != nil { // safeguard: run-lost-at-pause
		return // and if lost, it has its time to end
	}
	w.promise(until)
	if !w.suspend(s) {
		return
	}
	// Nothing was renewed meanwhile.
	if w.lost = cause(w.g); w.lost == nil && bootClock() > w.latest {
		w.lost = w.renewals.missing()
	}
	if w.lost != nil { // before the command goes on: it has no time left to end
		w.kill()
	} else {
		w.resume(s)
	}
}

// cause is why g is not held any more; nil if it is.
func cause(g held) error {
	_, err := g.Value()
	var detail *locker.Error
	if errors.As(err, &detail) {
		return detail.Err
	}
	return err
}

// cannotRun is the status that shells give a command that cannot be run.
func cannotRun(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return 127
	}
	return 126
}

// renewals tell on standard error when a lock begins not to be confirmed, and when it is again, and
// keep why.
type renewals struct {
	key   string
	store config.URL
	note  func(format string, args ...any)

	mu  sync.Mutex
	why error // nil if the present hold was confirmed when it was last asked for
}

// Begin implements [locker.Observer].
func (r *renewals) Begin(ctx context.Context, op string,
	_ locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	return ctx, func(_ locker.Hold, err error) {
		// If it was cancelled or lost, nobody waits for it.
		if op == locker.OpRenew && !errors.Is(ctx.Err(), context.Canceled) &&
			!errors.Is(err, backend.ErrLost) {
			r.answered(err)
		}
	}
}

// begin is for a new hold: what was wrong with the one before is not its own.
func (r *renewals) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = nil
}

func (r *renewals) answered(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		err = &storeError{Store: r.store, Err: err}
	}
	switch {
	case r.why == nil && err != nil: // safeguard: run-unconfirmed
		r.note("holdfast: %s: the lock is not confirmed: %v", printable(r.key), err)
	case r.why != nil && err == nil:
		r.note("holdfast: %s: the lock is confirmed again", printable(r.key))
	}
	r.why = err
}

// missing is why a lock is lost that was not confirmed for too long.
func (r *renewals) missing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil { // nobody asked for it: this process was stopped
		return errUnconfirmed
	}
	return fmt.Errorf("%w: %w", errUnconfirmed, r.why)
}

// A waitTeller tells on standard error who is waited for, and when an attempt is not answered.
type waitTeller struct {
	key   string
	store config.URL
	o     *common

	mu   sync.Mutex
	told string // of what
}

// Begin implements [locker.Observer].
func (w *waitTeller) Begin(ctx context.Context, op string,
	_ locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	if op != locker.OpAttempt {
		return ctx, func(locker.Hold, error) {}
	}
	return ctx, func(_ locker.Hold, err error) { w.refused(err) }
}

// refused tells of a holder, or of a store without an answer, if it is not what was told before.
func (w *waitTeller) refused(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var held *backend.HeldError
	switch {
	case errors.As(err, &held):
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return // the end of the wait
	case errors.Is(err, backend.ErrUnavailable), backend.AnswerOf(err) == backend.Unknown:
		if silent := "silent"; w.told != silent {
			w.told = silent
			why := &storeError{Store: w.store, Err: err}
			w.o.note("holdfast: %s: waiting, %v", printable(w.key), why)
		}
		return
	default:
		return
	}
	if key := who(held.Holder) + strconv.Itoa(held.Position); key != w.told {
		w.told = key
		before := ""
		if ahead := held.Position - 1; ahead > 0 {
			before = fmt.Sprintf(", %d before us", ahead)
		}
		w.o.note("holdfast: %s: waiting, held by %s", printable(w.key),
			holding(held.Holder, before))
	}
}
