package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
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
sets another time, whatever it costs. In a pipe each look is printed below the one before.`,
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
			for {
				began := time.Now()
				frame, err := c.look(ctx, prefix, rows, o.output == "json", o.paint(cmd))
				switch {
				case ctx.Err() != nil:
					return nil // interrupting it is how it ends
				case err != nil:
					return err
				}
				pause := interval
				if !cmd.Flags().Changed("interval") {
					pause = pace(interval, time.Since(began))
				}
				if isTerminal(os.Stdout) && o.output == "text" {
					fmt.Fprint(os.Stdout, "\x1b[H\x1b[2J") // to the top left, and clear
				}
				if _, err := os.Stdout.Write(frame); err != nil {
					return err
				}
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return nil
				}
			}
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

// look returns one frame of top.
func (c *client) look(ctx context.Context, prefix string, rows int, asJSON bool, p paint) ([]byte, error) {
	began := time.Now()
	var views []lockView
	held, waiting := 0, 0
	for l, err := range c.List(ctx, prefix) {
		if err != nil {
			return nil, storeError(err)
		}
		v := viewOf(l.Key, l.State)
		held, waiting = held+len(v.Holders), waiting+len(v.Waiters)
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b lockView) int {
		return cmp.Or(cmp.Compare(len(b.Waiters), len(a.Waiters)), cmp.Compare(b.oldest(), a.oldest()), cmp.Compare(a.Key, b.Key))
	})
	views = slices.CompactFunc(views, func(a, b lockView) bool { return a.Key == b.Key })
	all := len(views)
	views = views[:min(len(views), rows)]
	var frame bytes.Buffer
	if asJSON {
		err := printJSON(&frame, struct {
			Time    time.Time  `json:"time"`
			Keys    int        `json:"keys"`
			Holds   int        `json:"holds"`
			Waiters int        `json:"waiters"`
			Locks   []lockView `json:"locks"`
		}{began, all, held, waiting, views})
		return frame.Bytes(), err
	}
	fmt.Fprintf(&frame, "%s  %s  %d keys, %d holds, %d waiters\n\n", c.where, began.Format("15:04:05"), all, held, waiting)
	err := printTable(&frame, views, p)
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
