package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
	"github.com/holdfast-go/holdfast/locker"
)

// A lockView is a lock as the commands print it.
type lockView struct {
	Key     string       `json:"key"`
	Free    bool         `json:"free"`
	Token   uint64       `json:"last_token,omitempty"`
	Holders []holderView `json:"holders"`
	Waiters []waiterView `json:"waiters"`
}

// A claimView is what is told of a claim, whether it holds or waits.
type claimView struct {
	Mode    string `json:"mode"`
	Weight  int    `json:"weight,omitempty"` // of a permit, above 1
	Service string `json:"service,omitempty"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Note    string `json:"note,omitempty"`

	meta backend.Meta
}

type holderView struct {
	Token uint64 `json:"token,omitempty"`
	claimView
	Held  float64 `json:"held_s,omitempty"`
	Lease float64 `json:"lease_left_s"`
	Trace string  `json:"trace_id,omitempty"`

	hold backend.Holder
}

type waiterView struct {
	claimView
	Waits float64 `json:"waits_s,omitempty"`
}

func claimOf(mode backend.Mode, weight int, m backend.Meta) claimView {
	if weight <= 1 {
		weight = 0
	}
	return claimView{mode.String(), weight, m.Service, m.Host, m.PID, m.Note, m}
}

func viewOf(key string, s backend.State) lockView {
	v := lockView{
		Key: key, Free: len(s.Holders) == 0, Token: s.Token,
		Holders: []holderView{}, Waiters: []waiterView{},
	}
	for _, h := range s.Holders {
		v.Holders = append(v.Holders, holderView{
			Token: h.Token, claimView: claimOf(h.Mode, h.Weight, h.Meta),
			Held:  since(h.Meta.Since).Seconds(),
			Lease: h.TTL.Seconds(), // safeguard: lease-in-seconds
			Trace: traceID(h.Meta.Traceparent), hold: h,
		})
	}
	for _, w := range s.Waiters {
		v.Waiters = append(v.Waiters,
			waiterView{claimOf(w.Mode, w.Weight, w.Meta), since(w.Meta.Since).Seconds()})
	}
	return v
}

// traceID is that of a W3C traceparent; empty if it is none.
func traceID(traceparent string) string {
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 && len(parts[1]) == 32 {
		return parts[1]
	}
	return ""
}

// shown is how many waiters are printed one by one on a terminal.
const shown = 20

func (v lockView) print(w io.Writer, p terminal.Paint) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if v.Free {
		fmt.Fprintf(t, "%s is %s\n", printable(v.Key), p.In(terminal.Green, "free"))
		if v.Token != 0 {
			fmt.Fprintf(t, "  last token\t%d\n", v.Token)
		}
	}
	for _, h := range v.Holders {
		fmt.Fprintf(t, "%s is %s by %s\n",
			printable(v.Key), p.In(terminal.Yellow, "held"), name(h.meta))
		if h.Note != "" { // safeguard: inspect-note
			fmt.Fprintf(t, "  note\t%s\n", printable(h.Note))
		}
		if h.Held > 0 {
			fmt.Fprintf(t, "  for\t%s\n", ago(since(h.meta.Since)))
		}
		fmt.Fprintf(t, "  lease\t%s left\n", ago(h.hold.TTL))
		if h.Token != 0 {
			fmt.Fprintf(t, "  token\t%d\n", h.Token)
		}
		if h.Mode != backend.Exclusive.String() {
			fmt.Fprintf(t, "  mode\t%s\n", h.Mode)
		}
		if h.Weight > 0 {
			fmt.Fprintf(t, "  weight\t%d\n", h.Weight)
		}
		if h.Trace != "" {
			fmt.Fprintf(t, "  trace\t%s\n", printable(h.Trace))
		}
	}
	for i, waiter := range v.Waiters {
		if i == shown && room() > 0 { // safeguard: inspect-whole
			fmt.Fprintf(t, "  and %d more wait, whom a pipe is told of\n", len(v.Waiters)-shown)
			break
		}
		fmt.Fprintf(t, "  %d.\t%s waits", i+1, name(waiter.meta))
		if waiter.Waits > 0 {
			fmt.Fprintf(t, " for %s", ago(since(waiter.meta.Since)))
		}
		if waiter.Mode != backend.Exclusive.String() {
			fmt.Fprintf(t, ", %s", waiter.Mode)
		}
		if waiter.Weight > 0 {
			fmt.Fprintf(t, " of weight %d", waiter.Weight)
		}
		fmt.Fprintln(t, noted("", waiter.meta))
	}
	return t.Flush()
}

func newInspect() *cobra.Command {
	var o common
	return o.ofKey(&cobra.Command{
		Use:   "inspect KEY",
		Short: "Show who holds a lock, since when, and who waits for it",
		Example: "  holdfast inspect report --backend redis://localhost:6379\n" +
			"  holdfast inspect report -o json",
	}, o.inspect)
}

func (o *common) inspect(cmd *cobra.Command, c *client, key string) error {
	state, err := c.Inspect(cmd.Context(), key)
	if err != nil {
		return c.failure(err)
	}
	return o.show(cmd, viewOf(key, state))
}

func (o *common) show(cmd *cobra.Command, v lockView) error {
	if o.output == "json" {
		return printJSON(cmd.OutOrStdout(), v)
	}
	return v.print(cmd.OutOrStdout(), o.paint(cmd))
}

// ofKey is a command about one key, which run is given with an open store.
func (o *common) ofKey(cmd *cobra.Command,
	run func(cmd *cobra.Command, c *client, key string) error,
) *cobra.Command {
	cmd.Args = takes(1, 1)
	if cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			return o.withKey(cmd, args, run)
		}
	}
	o.flags(cmd)
	cmd.ValidArgsFunction = o.completeKeys
	return cmd
}

func (o *common) withKey(cmd *cobra.Command, args []string,
	run func(cmd *cobra.Command, c *client, key string) error,
) error {
	key, err := keyArg(args)
	if err != nil {
		return err
	}
	return o.with(cmd.Context(), func(c *client) error { return run(cmd, c, key) })
}

// with opens the store, and closes it behind do.
func (o *common) with(ctx context.Context, do func(*client) error) error {
	c, err := o.open(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.close())
}

// completeKeys completes KEY from the locks that are held or waited for.
func (o *common) completeKeys(cmd *cobra.Command, args []string,
	begun string,
) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	if o.output == "" {
		o.output = "text"
	}
	o.quiet = true
	c, err := o.open(ctx, nil)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer func() { _ = c.close() }()
	var keys []string
	for l, err := range c.List(ctx, begun) {
		if err != nil || len(keys) == 100 {
			break
		}
		keys = append(keys, l.Key)
	}
	return keys, cobra.ShellCompDirectiveNoFileComp
}

func newList() *cobra.Command {
	var o common
	var held, waited bool
	cmd := &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List the locks that are held or waited for",
		Long: `Prints a line for each lock whose key begins with PREFIX: how many wait and for how
long, for how long it has been held, by whom, and why. On a terminal the table fits the window: long
keys are shortened in the middle, and what there is no room for is left out. In a pipe, and with -o
json, nothing is.`,
		Example: "  holdfast list order- --waited\n" +
			"  holdfast list -o json | jq -r 'select(.waiters | length > 10) | .key'",
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd.Context(), func(c *client) error {
				var views []lockView
				for l, err := range c.List(cmd.Context(), strings.Join(args, "")) {
					if err != nil {
						return c.failure(err)
					}
					v := viewOf(l.Key, l.State)
					if held && v.Free || waited && len(v.Waiters) == 0 {
						continue
					}
					if o.output == "json" { // as they are found: there may be many
						if err := printJSON(cmd.OutOrStdout(), v); err != nil {
							return err
						}
						continue
					}
					views = append(views, v)
				}
				if len(views) == 0 {
					return nil
				}
				// safeguard: list-fits
				return tableOf(byKey(views), o.paint(cmd)).fit(room()).print(cmd.OutOrStdout(), "")
			})
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&held, "held", false, "only those that are held")
	cmd.Flags().BoolVar(&waited, "waited", false, "only those that are waited for")
	return cmd
}

// byKey sorts locks. One that was told of twice is there once.
func byKey(views []lockView) []lockView {
	slices.SortStableFunc(views, func(a, b lockView) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(views, func(a, b lockView) bool { return a.Key == b.Key })
}

// tableOf has a row for each lock, behind the names of the columns.
func tableOf(views []lockView, p terminal.Paint) table {
	t := table{
		{cells: []string{"KEY"}},
		{cells: []string{"WAIT"}, paint: func(row int, text string) string {
			if row == 0 {
				return text
			}
			return countWaiters(p, text)
		}},
		{cells: []string{"OLDEST"}},
		{cells: []string{"HELD"}},
		{cells: []string{"MODE"}, optional: 1},
		{cells: []string{"TOKEN"}, optional: 4},
		{cells: []string{"TRACE"}, optional: 3},
		{cells: []string{"HELD BY"}},
		{cells: []string{"NOTE"}, optional: 2, least: 12},
	}
	for _, v := range views {
		for i, cell := range v.row() {
			t[i].cells = append(t[i].cells, cell)
		}
	}
	return t.measured()
}

// row are the cells of a lock, in the order of tableOf.
func (v lockView) row() []string {
	longest, first, by := time.Duration(0), holderView{}, "nobody"
	for i, h := range v.Holders {
		longest = max(longest, since(h.meta.Since))
		if first, by = v.Holders[0], name(v.Holders[0].meta); i > 0 {
			by += fmt.Sprintf(" and %d more", i)
		}
	}
	oldest := time.Duration(0)
	for _, w := range v.Waiters {
		oldest = max(oldest, since(w.meta.Since))
	}
	token := ""
	if first.Token != 0 {
		token = strconv.FormatUint(first.Token, 10)
	}
	return []string{
		printable(v.Key), strconv.Itoa(len(v.Waiters)), blank(oldest), blank(longest),
		cmp.Or(first.Mode, "-"), cmp.Or(token, "-"), cmp.Or(printable(first.Trace), "-"),
		by, cmp.Or(printable(first.Note), "-"),
	}
}

// countWaiters paints a number of waiters.
func countWaiters(p terminal.Paint, n string) string {
	if n == "0" {
		return p.In(terminal.Plain, n)
	}
	return p.In(terminal.Yellow, n)
}

func blank(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return ago(d)
}

func newRelease() *cobra.Command {
	var o common
	var token uint64
	var force bool
	var text string
	cmd := &cobra.Command{
		Use:   "release {--ticket T | KEY --token N | KEY --force}",
		Short: "End the hold of a ticket, or somebody's hold of a lock",
		Long: `With --ticket it ends the hold that "holdfast acquire" took, and no other. The status
is 76 if that had ended before.

With --token it ends the hold that "holdfast inspect KEY" shows with the token, whoever's it is, and
lets in who waits. The program that held it hears of the loss as of any other, within a third of its
TTL at the latest, and its code may be at work until then: only a resource that checks tokens keeps
it from doing harm. The token makes sure that it is the hold you have seen, and not the next one.

With --force it looks itself who holds, and ends those holds, all of them if the lock is shared. It
says whom it took them from, and takes nothing from who comes next.`,
		Example: "  holdfast release --ticket \"$T\"\n  holdfast inspect report\n" +
			"  holdfast release report --token 1795363200123456\n  holdfast release report --force",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch given := cmd.Flags().Changed("token"); {
			case cmd.Flags().Changed("ticket") && (given || force || len(args) > 0):
				return usage("--ticket says all: give it without KEY, --token and --force")
			case cmd.Flags().Changed("ticket"):
				return o.withTicket(cmd, text, o.releaseTicket)
			case len(args) == 0:
				return usage("give --ticket, or a KEY with --token or --force")
			case given && force:
				return usage("--token and --force exclude each other: " +
					"one ends the hold that you have seen, the other whatever hold there is")
			case token == 0 && !force:
				return usage("--token is missing: take it from \"holdfast inspect %s\", "+
					"or give --force to end whatever hold there is", printable(args[0]))
			case force:
				return o.withKey(cmd, args, o.releaseAll)
			}
			return o.withKey(cmd, args, func(cmd *cobra.Command, c *client, key string) error {
				err := o.release(cmd, c, key, token)
				if errors.Is(err, backend.ErrLost) {
					return exit(exitFailed,
						"%s is not held with token %d (any more); nothing was released",
						printable(key), token)
				}
				return err
			})
		},
	}
	o.ofKey(cmd, nil)
	cmd.Args = takes(0, 1)
	ticketFlag(cmd, &text)
	cmd.Flags().Uint64Var(&token, "token", 0, "the token of the hold, as inspect shows it")
	cmd.Flags().BoolVar(&force, "force", false, "instead of --token: whoever holds now")
	return cmd
}

// release ends the hold with token, and says whose it was.
func (o *common) release(cmd *cobra.Command, c *client, key string, token uint64) error {
	h, err := c.ForceRelease(cmd.Context(), key, token)
	switch {
	case err != nil:
		return c.failure(err)
	case o.output == "json":
		v := viewOf(key, backend.State{Holders: []backend.Holder{h}})
		return printJSON(cmd.OutOrStdout(), v.Holders[0])
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: taken from %s, who had held it for %s\n",
		printable(key), name(h.Meta), blank(since(h.Meta.Since)))
	return err
}

// releaseAll ends the holds that there are now. One that has ended by itself meanwhile is none: a
// lock that changes hands needs no force.
func (o *common) releaseAll(cmd *cobra.Command, c *client, key string) error {
	s, err := c.Inspect(cmd.Context(), key)
	if err != nil {
		return c.failure(err)
	}
	lock, ended := printable(key), 0
	for _, h := range s.Holders {
		if h.Token == 0 {
			return exit(exitFailed, "%s is held by %s without a token, as other libraries hold: "+
				"only its holder can release it, or the end of its lease in %s",
				lock, name(h.Meta), ago(h.TTL))
		}
		switch err := o.release(cmd, c, key, h.Token); {
		case err == nil:
			ended++
		case !errors.Is(err, backend.ErrLost): // safeguard: force-goes-on
			return err
		}
	}
	switch {
	case len(s.Holders) == 0:
		return exit(exitFailed, "%s is not held; nothing was released", lock)
	case ended == 0:
		return exit(exitFailed, "%s: %s has released it just now; nothing was taken",
			lock, name(s.Holders[0].Meta))
	}
	return nil
}

// A change is what watch prints.
type change struct {
	Time   time.Time   `json:"time"`
	Event  string      `json:"event"`
	Key    string      `json:"key"`
	Holder *holderView `json:"holder,omitempty"`
	Wait   int         `json:"waiters"`
}

func newWatch() *cobra.Command {
	var o common
	return o.ofKey(&cobra.Command{
		Use:     "watch KEY",
		Short:   "Print each time a lock is granted and released",
		Example: "  holdfast watch report --backend redis://localhost:6379",
		Long: `Prints a line for each hold that begins or ends, from now on until it is interrupted.
The store tells of every hold, but one that lasts for less than two round trips to it. A lease that
a process hands on among its goroutines is one hold.

A Redis behind a proxy without RESP3 or CLIENT TRACKING tells nothing, nor does one whose ACL
forbids that to the user (+client|tracking allows it, on Redis 6.0 with +hello): then watch looks
when the lock may be free and each second, and misses what begins and ends between two looks.`,
	}, o.watch)
}

// watch prints what happens to key until ctx ends. A store that gives no answer is waited for, once
// it has given one.
func (o *common) watch(cmd *cobra.Command, c *client, key string) error {
	ctx := cmd.Context()
	var before *backend.State // as it was last told; nil before
	for s, err := range c.Holders(ctx, key) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && (before == nil || backend.Refused(err)): // safeguard: watch-ends-refused
			return c.failure(err)
		case err != nil:
			warn("holdfast watch: %v; it goes on when the store answers", c.failure(err))
			continue
		}
		event := func(kind string, holds []backend.Holder, but []backend.Holder) {
			for _, h := range viewOf(key, backend.State{Holders: holds}).Holders {
				if !slices.ContainsFunc(but, h.hold.Same) {
					o.change(cmd, change{time.Now(), kind, key, &h, len(s.Waiters)})
				}
			}
		}
		switch {
		case before != nil:
			event("ended", before.Holders, s.Holders)
			event("granted", s.Holders, before.Holders)
		case len(s.Holders) > 0:
			event("granted", s.Holders, nil)
		default:
			o.change(cmd, change{time.Now(), "free", key, nil, len(s.Waiters)})
		}
		before = &s
	}
	return ctx.Err()
}

func (o *common) change(cmd *cobra.Command, c change) {
	if o.output == "json" {
		_ = printJSON(cmd.OutOrStdout(), c)
		return
	}
	colours := map[string]terminal.Colour{
		"granted": terminal.Green, "ended": terminal.Yellow, "free": terminal.Plain,
	}
	line := c.Time.Format("15:04:05.000") + "  " + o.paint(cmd).In(colours[c.Event], c.Event)
	if c.Holder != nil {
		line += fmt.Sprintf("  token %d  %s", c.Holder.Token, who(c.Holder.meta))
	}
	if c.Wait > 0 {
		line += fmt.Sprintf("  %d wait", c.Wait)
	}
	fmt.Fprintln(cmd.OutOrStdout(), line)
}

func newWait() *cobra.Command {
	var limit time.Duration
	o := common{within: &limit}
	began := time.Now()
	cmd := o.ofKey(&cobra.Command{
		Use:     "wait KEY",
		Short:   "Wait until nobody holds a lock",
		Example: "  holdfast wait migration --timeout 5m && ./start.sh",
		Long: `Returns when nobody holds the lock. It takes nothing, so somebody else may have it a
moment later; "holdfast run" is for work that must be alone.

` + exitHelp,
	}, func(cmd *cobra.Command, c *client, key string) error {
		ctx := cmd.Context()
		if cmd.Flags().Changed("timeout") {
			if limit <= 0 {
				return usage("--timeout %v is not positive", limit)
			}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, left(limit, began))
			defer cancel()
		}
		last, err := c.untilFree(ctx, key)
		switch over := errors.Is(err, context.DeadlineExceeded); { // safeguard: wait-over
		case over && len(last.Holders) == 0:
			return exit(exitNotAcquired, "%s: the store did not say within %v who holds it",
				printable(key), limit)
		case over:
			return exit(exitNotAcquired, "%s is still held by %s",
				printable(key), who(last.Holders[0].Meta))
		}
		return err
	})
	cmd.Flags().DurationVar(&limit, "timeout", 0,
		"how long to wait, also for a store that is not up yet\n"+
			"(default: until it is free, on a store that is up)")
	return cmd
}

// untilFree returns when nobody holds key. last is how it was last told.
func (c *client) untilFree(ctx context.Context, key string) (last backend.State, err error) {
	for s, err := range c.Holders(ctx, key) {
		switch {
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err != nil:
			return last, c.failure(err)
		case len(s.Holders) == 0:
			return s, nil
		}
		last = s
	}
	return last, ctx.Err()
}

var _ locker.Locker[struct{}] = (*client)(nil)
