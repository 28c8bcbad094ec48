package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// A ticket is a hold that no process has: it is in the store, and in a text that acquire has
// printed. Unlike that of [locker.Client.Adopt] it is not used up: who has the text may renew and
// release.
//
// Safety: acquire has ended its own belief in the hold before there is a ticket, and no command
// believes after its answer. The name of the hold is in the ticket alone, so none but those who
// have it get a yes, and none after the hold has ended.
type ticket struct {
	locker.Ticket
	Namespace string `json:"namespace,omitempty"`
	Store     string `json:"store"` // without secrets, for people
}

// String is the ticket as one word that no shell changes.
func (t ticket) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // it is texts and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseTicket reads what String has written.
func parseTicket(text string) (t ticket, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return t, usage(`--ticket is empty or missing: give it what "holdfast acquire" has printed`)
	}
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(plain, &t)
	}
	if err = cmp.Or(err, backend.ValidateKey(t.Key)); err != nil || t.Owner == "" || t.Hold == "" ||
		t.TTL <= 0 || t.Token == 0 {
		return t, usage(`--ticket is not what "holdfast acquire" has printed, or not all of it`)
	}
	return t, nil
}

// claim is what asked for the hold, for the store.
func (t ticket) claim() backend.Claim {
	return backend.Claim{
		Key: backend.Namespaced(t.Namespace, t.Key), Owner: t.Owner, Hold: t.Hold, TTL: t.TTL,
		Reentrant: true, // and some may be in flight; safeguard: ticket-in-flight
	}
}

// ended is err of a request with the ticket.
func (t ticket) ended(c *client, err error) error {
	if !errors.Is(err, backend.ErrLost) {
		return c.failure(err)
	}
	elsewhere := ""
	if t.Store != c.where {
		elsewhere = ", and the ticket is from " + printable(t.Store)
	}
	return exit(exitLost, "%s is not held with this ticket (any more): "+
		"it was released, or its lease has ended; this is %s%s",
		printable(t.Key), c.where, elsewhere)
}

// A ticketView is what the commands about a ticket print as JSON.
type ticketView struct {
	Key    string  `json:"key"`
	Token  uint64  `json:"token"`
	Lease  float64 `json:"lease_left_s"`
	Ticket string  `json:"ticket,omitempty"`
}

// tell prints that so much of the lease is left.
func (t ticket) tell(cmd *cobra.Command, o *common, left time.Duration, format string,
	args ...any,
) error {
	if o.output == "json" {
		return printJSON(cmd.OutOrStdout(),
			ticketView{Key: t.Key, Token: t.Token, Lease: left.Seconds()})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n",
		printable(t.Key), fmt.Sprintf(format, args...))
	return err
}

const ticketHelp = `Exit status: 0 done, 1 failed, 2 wrong usage, 75 not acquired in time, 76 the
ticket's hold has ended, 77 store unreachable or refusing, 128 and the signal's
number if one ended it: 130 for Ctrl-C.`

// An acquirer takes a lock that outlives it.
type acquirer struct {
	common
	wait, ttl time.Duration
	noWait    bool
	why       noteFlag
}

func newAcquire() *cobra.Command {
	a := acquirer{common: common{outlives: true}}
	a.within = &a.wait
	began := time.Now()
	cmd := &cobra.Command{
		Use:   "acquire KEY --ttl D",
		Short: "Take a lock for several commands, and print its ticket",
		Long: `Nothing renews the hold: it ends with the TTL, whatever is at work then, unless
"holdfast renew" is called in time or "holdfast release" before. Where all of the
work is one command, "holdfast run" is safer: it renews, and ends its command
when the lock is lost.

Waits for the lock, and prints a ticket, with which the later steps of a job, on
this machine or another, renew, check and release it. Who has the ticket and may
use the store can release the lock. To those who wait HOLDFAST_SERVICE names the
job.

It is refused where a hold ends with the process that took it, on file:// and
mem://, by a quorum, and in the layouts of other libraries.

` + ticketHelp,
		Example: `  T=$(holdfast acquire deploy --ttl 30m) || exit
  ./build.sh && holdfast renew --ticket "$T" && ./deploy.sh
  holdfast release --ticket "$T"`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd, args, began) },
	}
	a.ofKey(cmd, nil)
	f := cmd.Flags()
	f.DurationVar(&a.ttl, "ttl", 0,
		"how long the hold lasts unless it is renewed or released, such as 30m; at most 24h")
	f.DurationVar(&a.wait, "wait", 0,
		"how long to wait for the lock, and for a store that is not up yet\n"+
			"(default: until the lock is to be had, from a store that is up)")
	f.BoolVar(&a.noWait, "no-wait", false, "do not wait: exit with 75 if another holds it")
	a.why.flag(f)
	return cmd
}

func (a *acquirer) run(cmd *cobra.Command, args []string, began time.Time) error {
	set := cmd.Flags().Changed
	key, err := keyArg(args)
	switch {
	case err != nil:
		return err
	case !set("ttl"):
		return usage("--ttl is missing: say how long the job takes at most, " +
			"as nothing renews the hold meanwhile")
	case set("wait") && a.wait <= 0:
		return usage("--wait %v is not positive", a.wait)
	case a.wait > 0 && a.noWait:
		return usage("--wait and --no-wait exclude each other")
	}
	if err := checkTTL(cmd, a.ttl, 1); err != nil {
		return err
	}
	teller := &waitTeller{key: key, o: &a.common}
	c, err := a.open(cmd.Context(), func(cfg *locker.Config) {
		if !a.quiet && !a.noWait {
			cfg.Observer = teller
		}
	})
	if err != nil {
		return err
	}
	teller.store = c.url
	return errors.Join(a.acquire(cmd, c, key, began), c.close())
}

// acquire takes the lock, and prints the ticket.
func (a *acquirer) acquire(cmd *cobra.Command, c *client, key string, began time.Time) error {
	ctx := cmd.Context()
	if err := checkTTL(cmd, a.ttl, c.backend.Capabilities().MinTTL); err != nil {
		return err
	}
	if err := c.nested(ctx, key, true); err != nil {
		return err
	}
	opts := []locker.Option{
		locker.Reentrant(backend.NewOwner()), locker.TTL(a.ttl), locker.Note(string(a.why)),
	}
	if a.wait > 0 {
		opts = append(opts, locker.WaitLimit(left(a.wait, began)))
	}
	g, err := (&lock{client: c, try: a.noWait}).Lock(ctx, key, opts...)
	if err != nil {
		return c.notAcquired(ctx, key, err)
	}
	taken, err := g.Detach()
	switch {
	case errors.Is(err, locker.ErrLost):
		return &exitError{status: exitLost, err: err}
	case err != nil: // the store does not say that it lasts for as long as it is to
		return errors.Join(c.failure(err), g.Unlock()) // safeguard: ticket-unconfirmed
	}
	t := ticket{taken, c.config.Namespace, c.where}
	signal.Ignore(syscall.SIGPIPE) // it would end us before the release; safeguard: ticket-pipe
	if a.output == "json" {
		err = printJSON(cmd.OutOrStdout(),
			ticketView{key, t.Token, time.Until(t.Until).Seconds(), t.String()})
	} else {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), t)
	}
	if err != nil { // nobody has the ticket; safeguard: ticket-unprinted
		// safeguard: ticket-unprinted-anyway
		_, unreleased := c.backend.Release(context.WithoutCancel(ctx), t.claim())
		return errors.Join(err, unreleased)
	}
	return nil
}

// ofTicket is a command about one ticket, which do is given with an open store.
func (o *common) ofTicket(cmd *cobra.Command,
	do func(cmd *cobra.Command, c *client, t ticket) error,
) *cobra.Command {
	var text string
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.withTicket(cmd, text, do) }
	o.flags(cmd)
	ticketFlag(cmd, &text)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func ticketFlag(cmd *cobra.Command, text *string) {
	cmd.Flags().StringVar(text, "ticket", "", `what "holdfast acquire" has printed`)
	_ = cmd.RegisterFlagCompletionFunc("ticket", cobra.NoFileCompletions)
}

func (o *common) withTicket(cmd *cobra.Command, text string,
	do func(cmd *cobra.Command, c *client, t ticket) error,
) error {
	t, err := parseTicket(text)
	if err != nil {
		return err
	}
	o.outlives = true
	return o.with(cmd.Context(), func(c *client) error { return do(cmd, c, t) })
}

func newRenew() *cobra.Command {
	var o common
	return o.ofTicket(&cobra.Command{
		Use:   "renew --ticket T",
		Short: "Have a ticket's lock last for its TTL from now",
		Long: `Has the hold of a ticket last for the TTL that it was acquired with, from now on. A
hold that has ended is not taken again: then the status is 76, and what it was to protect may have
another holder.

` + ticketHelp,
		Example: `  holdfast renew --ticket "$T" || exit`,
	}, func(cmd *cobra.Command, c *client, t ticket) error {
		began := time.Now()
		if err := c.backend.Renew(cmd.Context(), t.claim()); err != nil { // safeguard: ticket-renew
			return t.ended(c, err)
		}
		// From when it was asked for: from when it was granted nobody knows.
		// safeguard: ticket-renewed-left
		left := t.TTL - time.Since(began)
		return t.tell(cmd, &o, left, "held for another %s", ago(left))
	})
}

func newCheck() *cobra.Command {
	var o common
	return o.ofTicket(&cobra.Command{
		Use:   "check --ticket T",
		Short: "Show whether a ticket's lock is still held",
		Long: `Tells how much is left of a ticket's lease. It extends nothing, and is of the moment:
"holdfast renew" makes sure of a TTL.

` + ticketHelp,
		Example: `  holdfast check --ticket "$T" -o json | jq .lease_left_s`,
	}, func(cmd *cobra.Command, c *client, t ticket) error {
		began := time.Now()
		s, err := c.backend.Inspect(cmd.Context(), t.claim().Key)
		if err != nil {
			return t.ended(c, err)
		}
		for _, h := range s.Holders {
			if h.Token == t.Token { // safeguard: ticket-check
				// The store told the TTL after began. safeguard: ticket-left
				left := max(h.TTL-time.Since(began), 0)
				return t.tell(cmd, &o, left, "held, %s left", ago(left))
			}
		}
		return t.ended(c, backend.ErrLost)
	})
}

// releaseTicket ends the hold of t.
func (o *common) releaseTicket(cmd *cobra.Command, c *client, t ticket) error {
	if _, err := c.backend.Release(cmd.Context(), t.claim()); err != nil {
		return t.ended(c, err)
	}
	return t.tell(cmd, o, 0, "released")
}
