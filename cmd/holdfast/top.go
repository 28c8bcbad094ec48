package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
	"github.com/holdfast-go/holdfast/locker"
)

func newTop() *cobra.Command {
	var o common
	var interval time.Duration
	var rows int
	var prefix string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the locks that most wait for, live",
		Long: `Shows the locks with the most waiters, the oldest wait first among equals, and
looks again and again until q or Ctrl-C ends it. The arrow keys select a lock,
Enter shows who of its waiters waits for whom, which the arrow keys then go
through, and w, o, h and n sort by waiters, oldest wait, time held and name. Long
keys are shortened in the middle; mode, note, trace and token are shown where
there is room, and of a lock that is opened.

In a pipe, on a dumb terminal and on Windows there are no keys to press, and each
look is printed below the one before.

Each look lists all locks of the store that are held or waited for, which for
thousands of them takes the store some work. So it looks each 2s, or as much
later as keeps the store busy for less than a hundredth of the time; --interval
sets another time, whatever it costs.

If the store gives no answer any more, the last look stays and says so, until it
does again.

Of how often locks are granted it tells the least that it can be: the holds in
this look that were not there in the last one. Those that began and ended in
between are not seen.`,
		Example: `  holdfast top --backend redis://localhost:6379
  holdfast top --prefix order- -o json | jq -r '.locks[0].key'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond {
				return usage("--interval %v is below 100ms", interval)
			}
			if rows < 1 && cmd.Flags().Changed("rows") {
				return usage("--rows %d is not positive", rows)
			}
			pause := func(time.Duration) time.Duration { return interval }
			if !cmd.Flags().Changed("interval") {
				pause = func(took time.Duration) time.Duration { return pace(interval, took) }
			}
			return o.with(cmd.Context(), func(c *client) error {
				t := top{client: c, prefix: prefix, rows: rows, paint: o.paint(cmd)}
				return t.run(cmd.Context(), pause, o.output == "json")
			})
		},
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&interval, "interval", 2*time.Second, "how long to wait between two looks")
	f.IntVar(&rows, "rows", 0,
		"how many locks to show (default: as many as there is room for, 20 in a pipe)")
	f.StringVar(&prefix, "prefix", "", "only keys that begin with this")
	return cmd
}

// run looks again and again, on a terminal for who types there.
func (t *top) run(ctx context.Context, pause func(took time.Duration) time.Duration,
	json bool,
) error {
	if terminal.Is(os.Stdout) && !json {
		return t.show(ctx, os.Stdin, os.Stdout, func(ctx context.Context, seen func(frame)) error {
			var last frame
			return live(ctx, pause, io.Discard, func(ctx context.Context) ([]byte, error) {
				f, err := t.look(ctx)
				if err == nil {
					last = f
					seen(f)
				}
				return nil, err
			}, func(err error) {
				last.trouble = printable(err.Error())
				seen(last)
			})
		})
	}
	t.rows = cmp.Or(t.rows, 20)
	return live(ctx, pause, os.Stdout, func(ctx context.Context) ([]byte, error) {
		f, err := t.look(ctx)
		if err != nil {
			return nil, err
		}
		f.views = f.views[:min(len(f.views), t.rows)]
		return t.print(f, json)
	}, func(err error) { warn("holdfast top: %v; it goes on when the store answers", err) })
}

// pace is how long to wait behind a look that took so long: a server that did nothing else
// meanwhile is then busy for a hundredth of the time.
func pace(least, took time.Duration) time.Duration { return max(least, 99*took) }

// live calls look again and again and writes what it returns, with a pause that depends on how long
// the look took: the terminal may have been stopped. It ends with ctx, which is no error, or with
// an error of look; but a store that gives no answer any more is waited for, and silent told so
// once.
func live(
	ctx context.Context, pause func(took time.Duration) time.Duration, to io.Writer,
	look func(context.Context) ([]byte, error), silent func(error),
) error {
	for answered, told := false, false; ; {
		began := time.Now()
		frame, err := look(ctx)
		took := time.Since(began)
		var unwritten error
		if err == nil {
			_, unwritten = to.Write(frame)
		}
		switch {
		case ctx.Err() != nil:
			return nil // interrupting it is how it ends
		case err == nil && unwritten == nil:
			answered, told = true, false
		case !answered, backend.Refused(err), unwritten != nil: // safeguard: top-goes-on
			return cmp.Or(err, unwritten)
		case !told:
			told = true
			silent(err)
		}
		select {
		case <-time.After(pause(took)):
		case <-ctx.Done():
			return nil
		}
	}
}

// top looks at the locks of a store again and again.
type top struct {
	*client
	prefix string
	rows   int // to show; 0 is as many as there is room for
	paint  terminal.Paint

	last time.Time       // when the last look began
	seen map[string]bool // the holds that it saw, by key and id

	deadlocks [][]locker.Waiting // by the last look for them
	chased    time.Time          // when that was
}

// A frame is what a look saw.
type frame struct {
	began         time.Time
	views         []lockView
	keys          int
	holds, queued int
	grants        int           // at least, and 0 in the first look
	within        time.Duration // the time in which they were granted
	deadlocks     [][]locker.Waiting
	trouble       string // why there is no later one
}

// count returns how many holds are in views that the last look did not see, and the time in which
// they were granted, which is 0 for the first look. Holds that began and ended between the two are
// not in it.
func (t *top) count(began time.Time, views []lockView) (grants int, within time.Duration) {
	seen := make(map[string]bool, len(t.seen))
	for _, v := range views {
		for _, h := range v.Holders {
			hold := v.Key + "\x00" + cmp.Or(h.hold.ID, h.hold.Owner)
			if seen[hold] = true; !t.seen[hold] {
				grants++
			}
		}
	}
	if !t.last.IsZero() {
		within = time.Since(t.last)
	}
	t.last, t.seen = began, seen
	return grants, within
}

// look returns the next frame, the most contended first.
func (t *top) look(ctx context.Context) (frame, error) {
	f := frame{began: time.Now(), views: []lockView{}} // which is a list in JSON, too
	for l, err := range t.List(ctx, t.prefix) {
		if err != nil {
			return f, t.failure(err)
		}
		f.views = append(f.views, viewOf(l.Key, l.State))
	}
	f.views = byKey(f.views)
	f.keys = len(f.views)
	for _, v := range f.views {
		f.holds, f.queued = f.holds+len(v.Holders), f.queued+len(v.Waiters)
	}
	if f.began.Sub(t.chased) >= 2*time.Second { // it asks several times for each who waits
		t.deadlocks, t.chased = nil, f.began
		if f.queued > 0 {
			t.deadlocks, _ = locker.Deadlocks(ctx, t.backend, t.config.Namespace)
		}
	}
	f.deadlocks = t.deadlocks
	f.grants, f.within = t.count(f.began, f.views)
	if f.within == 0 {
		f.grants = 0
	}
	slices.SortStableFunc(f.views, orders[0].compare)
	return f, nil
}

// print is a frame for a pipe.
func (t *top) print(f frame, json bool) ([]byte, error) {
	var out bytes.Buffer
	if json {
		err := printJSON(&out, struct {
			Time    time.Time  `json:"time"`
			Keys    int        `json:"keys"`
			Holds   int        `json:"holds"`
			Waiters int        `json:"waiters"`
			Grants  int        `json:"new_holds,omitempty"`
			Within  float64    `json:"new_holds_within_s,omitempty"`
			Locks   []lockView `json:"locks"`

			Deadlocks [][]locker.Waiting `json:"deadlocks,omitempty"`
		}{f.began, f.keys, f.holds, f.queued, f.grants, f.within.Seconds(), f.views, f.deadlocks})
		return out.Bytes(), err
	}
	fmt.Fprintf(&out, "%s  %s\n", t.where, f.summary())
	for _, cycle := range f.deadlocks {
		fmt.Fprintln(&out, "deadlock:", printable(deadlock(cycle)))
	}
	fmt.Fprintln(&out)
	if len(f.views) == 0 {
		return out.Bytes(), nil
	}
	err := tableOf(f.views, t.paint).print(&out, "")
	return out.Bytes(), err
}

// summary says when the look was, and how much it saw.
func (f frame) summary() string {
	s := fmt.Sprintf("%s  %s, %s, %s", f.began.Format("15:04:05"),
		count(f.keys, "key"), count(f.holds, "hold"), count(f.queued, "waiter"))
	if n := len(f.views); n < f.keys { // safeguard: top-rows
		s += fmt.Sprintf(", the first %d are shown", n)
	}
	if n := len(f.deadlocks); n > 0 {
		s += fmt.Sprintf(", deadlocks: %d", n)
	}
	if rate := float64(f.grants) / max(f.within.Seconds(), 0.001); rate >= 0.05 {
		s += fmt.Sprintf(", at least %.1f new holds/s", rate)
	}
	return s
}

// count is so many things of a name.
func count(n int, name string) string {
	if n != 1 {
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}

// The orders that locks are shown in, each with the key that selects it.
var orders = []struct {
	key, name string
	compare   func(a, b lockView) int
}{
	{"w", "waiters", func(a, b lockView) int {
		return cmp.Or(
			cmp.Compare(len(b.Waiters), len(a.Waiters)), cmp.Compare(b.oldest(), a.oldest()))
	}},
	{"o", "oldest", func(a, b lockView) int { return cmp.Compare(b.waited(), a.waited()) }},
	{"h", "held", func(a, b lockView) int { return cmp.Compare(b.held(), a.held()) }},
	{"n", "name", func(a, b lockView) int { return cmp.Compare(a.Key, b.Key) }},
}

// waited is the longest wait, in seconds as of the look.
func (v lockView) waited() (s float64) {
	for _, w := range v.Waiters {
		s = max(s, w.Waits)
	}
	return s
}

// held is the longest hold, in seconds as of the look.
func (v lockView) held() (s float64) {
	for _, h := range v.Holders {
		s = max(s, h.Held)
	}
	return s
}

// oldest is the longest wait, or the longest hold where nobody waits.
func (v lockView) oldest() float64 {
	if len(v.Waiters) == 0 {
		return v.held()
	}
	return v.waited()
}
