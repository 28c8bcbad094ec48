package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

func newTop() *cobra.Command {
	var o common
	var interval time.Duration
	var rows int
	var prefix string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the locks that most wait for, live",
		Long: `Shows the locks with the most waiters, the oldest wait first among equals, and looks again and again until it is
interrupted. Each look lists all locks of the store that are held or waited for, which for thousands of them takes the store
some work. So it looks each 2s, or as much later as keeps the store busy for less than a hundredth of the time; --interval
sets another time, whatever it costs. In a pipe each look is printed below the one before.

Of how often locks are granted it tells the least that it can be: the holds in this look that were not there in the last one.
Those that began and ended in between are not seen.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if interval < 100*time.Millisecond {
				return usage("--interval %v is below 100ms", interval)
			}
			if rows < 1 {
				return usage("--rows %d is not positive", rows)
			}
			ctx := cmd.Context()
			c, err := o.open(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.close()) }()
			pause := func(time.Duration) time.Duration { return interval }
			if !cmd.Flags().Changed("interval") {
				pause = func(took time.Duration) time.Duration { return pace(interval, took) }
			}
			t := top{
				client: c, prefix: prefix, rows: rows, json: o.output == "json", paint: o.paint(cmd),
			}
			clear := ""
			if isTerminal(os.Stdout) && !t.json {
				clear = "\x1b[H\x1b[2J" // to the top left, and clear
			}
			return live(ctx, pause, os.Stdout, func(ctx context.Context) ([]byte, error) {
				frame, err := t.look(ctx)
				return append([]byte(clear), frame...), err
			})
		},
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&interval, "interval", 2*time.Second, "how long to wait between two looks")
	f.IntVar(&rows, "rows", 20, "how many locks to show")
	f.StringVar(&prefix, "prefix", "", "only keys that begin with this")
	return cmd
}

// pace is how long to wait behind a look that took so long: a server that did nothing else
// meanwhile is then busy for a hundredth of the time.
func pace(least, took time.Duration) time.Duration { return max(least, 99*took) }

// live calls look again and again and writes what it returns, with a pause that depends on how long
// the look took: the terminal may have been stopped. It ends with ctx, which is no error, or with an
// error of look.
func live(
	ctx context.Context, pause func(took time.Duration) time.Duration, to io.Writer,
	look func(context.Context) ([]byte, error),
) error {
	for {
		began := time.Now()
		frame, err := look(ctx)
		took := time.Since(began)
		if err == nil {
			_, err = to.Write(frame)
		}
		switch {
		case ctx.Err() != nil:
			return nil // interrupting it is how it ends
		case err != nil:
			return err
		}
		select {
		case <-time.After(pause(took)):
		case <-ctx.Done():
			return nil
		}
	}
}

// top makes the frames of the command.
type top struct {
	*client
	prefix string
	rows   int
	json   bool
	paint  paint

	last time.Time       // when the last look began
	seen map[string]bool // the holds that it saw, by key and id
}

// count returns how many holds are in views that the last look did not see, and the time in which
// they were granted, which is 0 for the first look. Holds that began and ended between the two are
// not in it.
func (t *top) count(began time.Time, views []lockView) (grants int, within time.Duration) {
	seen := make(map[string]bool, len(t.seen))
	for _, v := range views {
		for _, h := range v.Holders {
			hold := v.Key + "\x00" + h.id
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

// look returns the next frame.
func (t *top) look(ctx context.Context) ([]byte, error) {
	began := time.Now()
	var views []lockView
	for l, err := range t.List(ctx, t.prefix) {
		if err != nil {
			return nil, t.failure(err)
		}
		views = append(views, viewOf(l.Key, l.State))
	}
	// One that List told of twice counts once.
	slices.SortStableFunc(views, func(a, b lockView) int { return cmp.Compare(a.Key, b.Key) })
	views = slices.CompactFunc(views, func(a, b lockView) bool { return a.Key == b.Key })
	slices.SortFunc(views, func(a, b lockView) int {
		return cmp.Or(cmp.Compare(len(b.Waiters), len(a.Waiters)), cmp.Compare(b.oldest(), a.oldest()), cmp.Compare(a.Key, b.Key))
	})
	keys, held, waiting := len(views), 0, 0
	for _, v := range views {
		held, waiting = held+len(v.Holders), waiting+len(v.Waiters)
	}
	grants, within := t.count(began, views)
	if within == 0 {
		grants = 0
	}
	views = views[:min(len(views), t.rows)]
	var frame bytes.Buffer
	if t.json {
		err := printJSON(&frame, struct {
			Time    time.Time  `json:"time"`
			Keys    int        `json:"keys"`
			Holds   int        `json:"holds"`
			Waiters int        `json:"waiters"`
			Grants  int        `json:"new_holds,omitempty"`
			Within  float64    `json:"new_holds_within_s,omitempty"`
			Locks   []lockView `json:"locks"`
		}{began, keys, held, waiting, grants, within.Seconds(), views})
		return frame.Bytes(), err
	}
	fmt.Fprintf(&frame, "%s  %s  %d keys, %d holds, %d waiters",
		t.where, began.Format("15:04:05"), keys, held, waiting)
	if within > 0 {
		fmt.Fprintf(&frame, ", at least %.1f new holds/s", float64(grants)/within.Seconds())
	}
	fmt.Fprint(&frame, "\n\n")
	err := printTable(&frame, views, t.paint)
	return frame.Bytes(), err
}

// oldest is the longest wait, or the longest hold where nobody waits, in seconds as of the look.
func (v lockView) oldest() (s float64) {
	for _, w := range v.Waiters {
		s = max(s, w.Waits)
	}
	for _, h := range v.Holders {
		if len(v.Waiters) == 0 {
			s = max(s, h.Held)
		}
	}
	return s
}
