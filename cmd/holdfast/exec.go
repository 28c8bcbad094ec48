package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/opening"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
)

// A runner runs a command under a lock.
type runner struct {
	common
	wait, ttl, maxHold, killAfter, oncePer time.Duration
	noWait, shared, lead                   bool
	permits, weight                        int
}

const runLong = `Waits for the lock, runs CMD while it is held, and releases it when CMD ends.

If the lock is lost (the store is away for too long, or somebody released it), CMD's process group gets TERM, and KILL
after --kill-after, in any case before the lease can have ended, so that CMD does not work beside the next holder. On
Linux CMD is killed when holdfast itself is; elsewhere, and what CMD has started besides, may outlive it.

CMD finds HOLDFAST_KEY and HOLDFAST_TOKEN in its environment: a resource that remembers the highest token it has seen can
refuse a CMD that comes too late.

With --once-per, CMD is not run, and the status is 0, if it was run less than that ago, counted from the beginning of that
run by the store's clock. Who comes while it runs waits, or with --no-wait exits with 75. A run counts however CMD ends,
also if it fails. One that was cut off does not: if the lock is lost, --max-hold is over, or the machine crashes in the
middle, another may run CMD in the same period, a TTL later at most; the two have different tokens. Give less than the
period of a schedule, such as 18h for a daily job, so that a clock that is a little early skips nothing.

` + exitHelp

func newRun() *cobra.Command {
	var r runner
	cmd := &cobra.Command{
		Use:   "run KEY [flags] -- CMD [ARG...]",
		Short: "Run a command while holding a lock",
		Long:  runLong,
		Example: `  holdfast run report --backend redis://localhost:6379 -- ./report.sh
  holdfast run report --no-wait -- ./report.sh || [ $? = 75 ]     # in a crontab of several machines
  holdfast run nightly --once-per 18h -- ./nightly.sh             # the same, once a night even if it is quick
  holdfast run db --shared -- pg_dump shop
  holdfast run encode --permits 4 -- ffmpeg ...
  holdfast run memory --permits 64 --weight 16 -- ./train.sh      # 16 of 64 GB`,
		Args: cobra.MinimumNArgs(2),
		RunE: r.run,
	}
	r.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&r.wait, "wait", 0, "how long to wait for the lock (default: until it is to be had)")
	f.BoolVar(&r.noWait, "no-wait", false, "do not wait: exit with 75 if another holds it")
	f.BoolVar(&r.shared, "shared", false, "hold it together with others who do")
	f.IntVar(&r.permits, "permits", 0, "hold one of so many permits; all who use KEY must say the same")
	f.IntVar(&r.weight, "weight", 1, "hold so many of the permits; who needs more than are free waits, and is not overtaken")
	f.DurationVar(&r.oncePer, "once-per", 0, "do not run CMD if it was run less than this ago; see above")
	return cmd
}

func newLeader() *cobra.Command {
	r := runner{lead: true}
	cmd := &cobra.Command{
		Use:   "leader KEY [flags] [-- CMD [ARG...]]",
		Short: "Show who leads, or run a command whenever this process leads",
		Long: `Without CMD it shows who holds KEY. With CMD it waits for KEY and runs CMD; when the lock is lost, CMD is ended as by
"holdfast run", and it waits again. It ends when CMD ends by itself, with CMD's status.

` + exitHelp,
		Example: "  holdfast leader scheduler\n  holdfast leader scheduler -- ./scheduler",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return r.run(cmd, args)
			}
			return r.inspect(cmd, args)
		},
	}
	r.flags(cmd)
	return cmd
}

func (r *runner) flags(cmd *cobra.Command) {
	r.common.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&r.ttl, "ttl", 0, "how long a crashed holder blocks others (default: the configuration's, else 30s)")
	f.DurationVar(&r.maxHold, "max-hold", 0, "end CMD, as if the lock were lost, when it has held for so long")
	f.DurationVar(&r.killAfter, "kill-after", 10*time.Second, "how long CMD may take to end after TERM; at most a third of the TTL")
	cmd.ValidArgsFunction = r.completeKeys
}

// check refuses flags that make no sense before anything is opened.
func (r *runner) check(cmd *cobra.Command) error {
	set := cmd.Flags().Changed
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"wait", r.wait}, {"ttl", r.ttl}, {"max-hold", r.maxHold}, {"kill-after", r.killAfter}, {"once-per", r.oncePer}} {
		if (set(f.name) || f.name == "kill-after") && f.d <= 0 {
			return usage("--%s %v is not positive", f.name, f.d)
		}
	}
	switch {
	case r.noWait && set("wait"):
		return usage("--wait and --no-wait exclude each other")
	case r.shared && set("permits"):
		return usage("--shared and --permits exclude each other")
	case set("permits") && r.permits < 1:
		return usage("--permits %d is not positive", r.permits)
	case set("weight") && !set("permits"):
		return usage("--weight is for --permits")
	case set("weight") && (r.weight < 1 || r.weight > r.permits):
		return usage("--weight %d is not between 1 and the %d of --permits", r.weight, r.permits)
	case r.oncePer > 0 && (r.shared || set("permits")):
		return usage("--once-per is for a lock that one holds: not together with --shared or --permits")
	case r.oncePer > backend.MaxNotBefore:
		return usage("--once-per %v is over %v", r.oncePer, backend.MaxNotBefore)
	}
	return nil
}

func (r *runner) options() (opts []locker.Option) {
	if r.shared {
		opts = append(opts, locker.Shared())
	}
	if r.permits > 0 {
		opts = append(opts, locker.Permit(r.permits), locker.Weight(r.weight))
	}
	if r.wait > 0 {
		opts = append(opts, locker.WaitLimit(r.wait))
	}
	return opts
}

func (r *runner) run(cmd *cobra.Command, args []string) (err error) {
	if err := r.check(cmd); err != nil {
		return err
	}
	if dash := cmd.ArgsLenAtDash(); dash != 1 {
		return usage("the command goes behind --, as in: holdfast %s %s -- CMD", cmd.Name(), printable(args[0]))
	}
	key, err := keyArg(args)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[1])
	if err != nil { // before the lock is taken
		return &exitError{status: cannotRun(err), err: fmt.Errorf("cannot run %s: %w", printable(args[1]), errors.Unwrap(err))}
	}
	if r.oncePer > 0 {
		if f, err := r.load(); err == nil && f.Backend.IsZero() {
			return usage("--once-per needs a store that is named, as it has to outlive a restart of the machine: " +
				"give --backend URL, such as file:///var/lib/locks, or set HOLDFAST_BACKEND")
		}
	}
	ctx, teller := cmd.Context(), &waitTeller{key: key, o: &r.common}
	c, err := r.open(ctx, func(cfg *locker.Config) {
		if r.ttl > 0 {
			cfg.TTL = r.ttl
		}
		if r.maxHold > 0 {
			cfg.MaxHold = r.maxHold
		}
		if cfg.Service == "" { // those who wait are to know what runs, not by what
			cfg.Service = filepath.Base(path)
		}
		if !r.quiet && !r.noWait {
			cfg.Observer = teller
		}
	})
	if err != nil {
		return err
	}
	defer func() {
		if closed := c.close(); err == nil {
			err = closed
		}
	}()
	teller.store = c.url
	for {
		err = r.once(ctx, c, key, path, args[1:])
		var exit *exitError
		if !r.lead || !errors.As(err, &exit) || exit.status != exitLost || ctx.Err() != nil {
			return err
		}
		r.note("holdfast: %v; waiting to lead again", exit)
	}
}

// A lock takes the lock in the way that the flags say, and keeps the guard, which locker.Do and
// locker.Once keep to themselves.
type lock struct {
	*client
	try   bool
	guard *locker.Guard[struct{}]
}

// Lock is Lock or TryLock of the client.
func (l *lock) Lock(ctx context.Context, key string, opts ...locker.Option) (g *locker.Guard[struct{}], err error) {
	take := l.client.Lock
	if l.try {
		take = l.TryLock
	}
	l.guard, err = take(ctx, key, opts...)
	return l.guard, err
}

// once takes the lock, runs the command and releases the lock.
func (r *runner) once(ctx context.Context, c *client, key, path string, argv []string) error {
	var status int
	var lost, failed, err error
	ran, l := false, &lock{client: c, try: r.noWait}
	work := func(context.Context, struct{}) error {
		ran = true
		status, lost, failed = r.under(ctx, l.guard, c, key, path, argv)
		return lost // so that a run that was cut off does not count for Once
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
		r.note("holdfast: %s: was run less than %v ago, and is not run again", printable(key), r.oncePer)
		return nil
	case failed != nil:
		return failed
	case lost != nil:
		return &exitError{status: exitLost, err: fmt.Errorf("%s: %w; the command was ended", printable(key), lost)}
	case errors.Is(err, locker.ErrLost), errors.Is(err, locker.ErrMaxHold): // while the command was ending
		return &exitError{status: exitLost, err: err}
	case err != nil: // the lease runs out by itself, and the command has done its work
		r.note("holdfast: %v", err)
	}
	if status != 0 {
		return &exitError{status: status}
	}
	return nil
}

// notAcquired is a failed Lock with the status that it stands for.
func (c *client) notAcquired(ctx context.Context, key string, err error) error {
	var held *backend.HeldError
	switch {
	case ctx.Err() != nil, errors.Is(err, backend.ErrInvalid), errors.Is(err, errors.ErrUnsupported):
		return err
	case errors.As(err, &held):
		return &exitError{status: exitNotAcquired, err: fmt.Errorf("%s is held by %s", printable(key), holding(held.Holder))}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, backend.ErrMismatch):
		return &exitError{status: exitNotAcquired, err: err}
	}
	return c.failure(err)
}

func holding(m backend.Meta) string {
	if d := since(m.Since); d > 0 {
		return who(m) + " for " + ago(d)
	}
	return who(m)
}

// under runs the command under g. lost is why the lock ended before the command did.
func (r *runner) under(
	ctx context.Context, g *locker.Guard[struct{}], c *client, key, path string, argv []string,
) (status int, lost, err error) {
	// The child is killed when the thread that made it ends, so that is this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	hold := g.Hold()
	p, err := start(path, argv, append(os.Environ(),
		"HOLDFAST_KEY="+key, "HOLDFAST_TOKEN="+strconv.FormatUint(hold.Token, 10)), signsOfLife(c.backend)...)
	if err != nil {
		return 0, nil, &exitError{status: cannotRun(err), err: fmt.Errorf("cannot run %s: %w", printable(argv[0]), err)}
	}
	if ctx.Err() != nil { // the signal came before the child
		p.signal(terminate)
	}
	grace := min(r.killAfter, time.Until(g.Until())/3)
	// The guard's context also ends with ctx, which a signal ends; the child gets that signal
	// itself.
	over, watch := g.Lost(), time.NewTimer(time.Until(g.Until())-grace)
	defer watch.Stop()
	maxHold := c.config.MaxHold
	longest, kill := time.NewTimer(maxHold), time.NewTimer(0)
	defer longest.Stop()
	defer kill.Stop()
	if kill.Stop(); maxHold == 0 {
		longest.Stop()
	}
	end := func(why error, within time.Duration) { // once: what comes later must not change the time to end
		lost = why
		watch.Stop()
		longest.Stop()
		p.signal(terminate)
		kill.Reset(within)
	}
	for {
		select {
		case status := <-p.ended:
			if lost == nil { // else it has not done all its work under the lock
				lost = cause(g)
			}
			return status, lost, nil
		case s := <-signals:
			p.signal(s)
		case <-p.stopped:
			p.pause()
			if lost == nil {
				lost = cause(g)
			}
			if lost != nil { // before the command goes on: it has no time left to end
				p.kill()
			} else {
				p.resume()
			}
		case <-over:
			over = nil
			if lost != nil { // the lease has ended, and the command had its time
				p.kill()
				continue
			}
			end(cause(g), grace)
		case <-longest.C: // more than the grace is left of the lease, else watch was first
			end(locker.ErrMaxHold, grace)
		case <-watch.C:
			left := time.Until(g.Until())
			if left > grace {
				watch.Reset(left - grace)
				continue
			}
			// Renewals fail. The command gets the rest of the lease to end.
			why := cause(g)
			if why == nil {
				why = fmt.Errorf("%w: the store has not confirmed it for too long", locker.ErrLost)
			}
			end(why, max(left-left/10, 0))
		case <-kill.C:
			p.kill()
		}
	}
}

// cause is why g is not held any more; nil if it is.
func cause(g *locker.Guard[struct{}]) error {
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

// A waitTeller tells on standard error who is waited for, and when an attempt is not answered.
type waitTeller struct {
	key   string
	store config.URL
	o     *common

	mu   sync.Mutex
	told string // of what
}

// Begin implements [locker.Observer].
func (w *waitTeller) Begin(ctx context.Context, op string, _ locker.Hold) (context.Context, func(locker.Hold, error)) {
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
			why := &opening.Error{Store: w.store, Err: err}
			w.o.note("holdfast: %s: waiting, %v", printable(w.key), why)
		}
		return
	default:
		return
	}
	line := holding(held.Holder)
	if key := who(held.Holder) + strconv.Itoa(held.Position); key != w.told {
		w.told = key
		if ahead := held.Position - 1; ahead > 0 {
			line += fmt.Sprintf(", %d before us", ahead)
		}
		w.o.note("holdfast: %s: waiting, held by %s", printable(w.key), strings.TrimSpace(line))
	}
}
