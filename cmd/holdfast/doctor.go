package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
)

const (
	doctorLimit = 30 * time.Second // for one store
	wakeLimit   = 10 * time.Second // for a message that a lock is free
	roundTrips  = 20

	longerTTL = "set a longer ttl in the configuration (HOLDFAST_TTL)"
)

func newDoctor() *cobra.Command {
	var o common
	cmd := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Find out whether a store is fit to keep locks, and what to change",
		Long: `Looks at the store that URL or the configuration names: whether it can be reached,
how long a request takes beside the TTL, whether a lock can be taken and freed and who waits for it
is woken, whether locks can be listed, and, as far as the store tells, its version, eviction,
persistence, replicas or members, space, clock and the clock's rate, and what its user may do. Of a
quorum every node is looked at, and whether two are the same server. On Linux it also looks at how
the kernel corrects this machine's clock. It takes locks of its own, named holdfast-doctor-..., and
changes nothing else.

"fail" is what keeps locks from working, or can lose one without any fault; "warn" is what makes a
fault worse than it need be. Exit status: 0 nothing failed, 1 something did, 2 wrong usage.`,
		Example: "  holdfast doctor redis://localhost:6379\n" +
			"  holdfast doctor -o json | jq -r 'select(.level != \"ok\")'",
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := o.loadStore(args)
			if err != nil {
				return err
			}
			if err := o.wellFormed(cmd.Context(), f); err != nil {
				return err
			}
			d := doctor{
				o: &o, w: cmd.OutOrStdout(), paint: o.paint(cmd), file: f,
				stopped: cmd.Context().Err,
			}
			d.all(cmd.Context())
			d.machine()
			switch {
			case cmd.Context().Err() != nil:
				return cmd.Context().Err()
			case d.failed > 0:
				return exit(exitFailed, "%d of %d checks failed", d.failed, d.count)
			}
			return nil
		},
	}
	o.flags(cmd)
	cmd.ValidArgsFunction = completeSchemes
	return cmd
}

// loadStore is load for a command that may be given the store's URL as an argument.
func (o *common) loadStore(args []string) (config.File, error) {
	if len(args) > 0 {
		switch {
		case o.backend != "":
			return config.File{}, usage("URL and --backend are the same; give one of them")
		case args[0] == "":
			return config.File{}, usage("URL is empty")
		}
		o.backend, o.argument = args[0], true
	}
	f, err := o.load()
	if err == nil && f.Backend.IsZero() {
		err = noStore
	}
	return f, err
}

// A doctor prints what it finds of a store.
type doctor struct {
	o     *common
	w     io.Writer
	paint terminal.Paint
	file  config.File
	store string // that it is looking at, without secrets

	stopped func() error // why no more is found

	count, failed int
	findings      []backend.Finding // of store, in text
}

func (d *doctor) find(check string, level backend.Level, text, change string) {
	d.add(backend.Finding{Check: check, Level: level, Text: text, Change: change})
}

func (d *doctor) add(f backend.Finding) {
	if d.stopped() != nil { // a request that is interrupted tells nothing of the store
		return
	}
	d.count++
	if f.Level == backend.Fail {
		d.failed++
	}
	if d.o.output == "json" {
		_ = printJSON(d.w, struct {
			Store  string        `json:"store"`
			Check  string        `json:"check"`
			Level  backend.Level `json:"level"`
			Text   string        `json:"text"`
			Change string        `json:"change,omitempty"`
		}{d.store, f.Check, f.Level, f.Text, f.Change})
		return
	}
	d.findings = append(d.findings, f)
}

// flush prints the findings of one store.
func (d *doctor) flush() {
	if len(d.findings) == 0 {
		return
	}
	colours := map[string]terminal.Colour{
		string(backend.OK): terminal.Green, string(backend.Warn): terminal.Yellow,
		string(backend.Fail): terminal.Red,
	}
	t := table{
		{fold: true, paint: func(_ int, level string) string {
			return d.paint.In(colours[level], level)
		}},
		{fold: true},
		{fold: true}, // safeguard: doctor-folds
	}
	for _, f := range d.findings {
		rows := [][]string{{string(f.Level), f.Check, printable(f.Text)}}
		if f.Change != "" {
			rows = append(rows, []string{"", "", "to do: " + printable(f.Change)})
		}
		for _, cells := range rows {
			for i, cell := range cells {
				t[i].cells = append(t[i].cells, cell)
			}
		}
	}
	fmt.Fprintln(d.w, printable(d.store))
	_ = t.measured().fit(max(room()-2, 0)).print(d.w, "  ")
	d.findings = nil
}

// machine looks at the clock that holders on this machine go by.
func (d *doctor) machine() {
	d.store = "this machine"
	if f, err := machineClock(); err == nil {
		d.add(f)
	}
	d.flush()
}

// all looks at the store, and at each node of a quorum before it.
func (d *doctor) all(ctx context.Context) {
	defer d.flush()
	u, err := backend.ParseURL(d.file.Backend.Reveal())
	if err != nil || u.Scheme != "redlock" {
		d.one(ctx, d.file, nil)
		return
	}
	nodes := u.Query()["node"]
	same := map[string]string{} // node by identity
	for _, node := range nodes {
		f := d.file
		if f.Backend, err = config.ParseURL(node); err == nil { // else wellFormed has refused it
			d.one(ctx, f, same)
			d.flush()
		}
	}
	d.one(ctx, d.file, nil)
	switch n := len(nodes); {
	case n < 3:
		d.find("nodes", backend.Warn,
			fmt.Sprintf("%d: a quorum of less than 3 bears no failure", n),
			"name 3 or 5 independent nodes")
	case n%2 == 0:
		d.find("nodes", backend.Warn,
			fmt.Sprintf("%d, which bear no more failures than %d", n, n-1),
			"add one, or take one away")
	default:
		d.find("nodes", backend.OK, fmt.Sprintf("%d, of which %d may fail", n, (n-1)/2), "")
	}
}

// one looks at one store. In same are the other nodes of its quorum; nil if it is no node.
func (d *doctor) one(ctx context.Context, f config.File, same map[string]string) {
	d.store = f.Backend.String()
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	began := time.Now()
	b, cfg, err := openStore(ctx, f)
	if errors.Is(err, backend.ErrUnsafe) {
		// An evicting Redis: the rest can be looked at all the same.
		if b2, cfg2, err2 := openStore(ctx, insist(f)); err2 == nil {
			b, cfg, err = b2, cfg2, nil
		}
	}
	if err != nil {
		d.find("reached", backend.Fail, err.Error(), doctorAdvice(err))
		return
	}
	defer func() { _ = b.Close() }()
	d.find("reached", backend.OK, "in "+ago(time.Since(began)), "")
	found, err := b.Diagnose(ctx)
	if err != nil {
		d.find("set-up", backend.Warn,
			"the store does not tell how it is set up: "+reason(err), remedy(err))
	}
	ttl := cmp.Or(cfg.TTL, max(locker.DefaultTTL, b.Capabilities().MinTTL))
	for _, f := range found {
		d.add(withTTL(f, ttl))
	}
	d.identity(ctx, b, f.Backend, same)
	key := backend.Namespaced(cfg.Namespace, "holdfast-doctor-"+backend.NewOwner())
	if d.takes(ctx, b, f.Backend, key) {
		d.speed(ctx, b, key, ttl)
		d.wakes(ctx, b, key)
	}
	d.lists(ctx, b, key)
	d.deadlocks(ctx, b, f.Locker.Namespace)
}

// doctorAdvice is what the doctor advises on err, of the store that it looks at.
func doctorAdvice(err error) string {
	return strings.TrimSuffix(adviceOn(err, "the URL"), orDoctor) // safeguard: doctor-names-doctor
}

// withTTL is a finding where leases are that long.
func withTTL(f backend.Finding, ttl time.Duration) backend.Finding {
	if f.Level == backend.OK && ttl < f.MinTTL { // safeguard: doctor-ttl
		f.Level, f.Text, f.Change = backend.Warn, f.Text+"; it is "+ago(ttl), longerTTL
	}
	return f
}

// insist is f with a store that may evict.
func insist(f config.File) config.File {
	raw, sep := f.Backend.Reveal(), "?"
	if strings.Contains(raw, "?") {
		sep = "&"
	}
	if u, err := config.ParseURL(raw + sep + "allow_eviction=true"); err == nil {
		f.Backend = u
	}
	return f
}

// remedy is what to do about a request that failed.
func remedy(err error) string {
	switch {
	case errors.Is(err, backend.ErrDenied):
		return "look at user, password and permissions; " +
			"the page of the store's package lists what is needed"
	case errors.Is(err, backend.ErrUnsafe):
		return "mend what the message names; " +
			"the page of the store's package says what can be accepted instead"
	case errors.Is(err, errors.ErrUnsupported):
		return "upgrade the server, or use another store"
	}
	return "see that the server is up, can write, and is where the URL says"
}

func (d *doctor) identity(ctx context.Context, b backend.Backend, u config.URL,
	same map[string]string,
) {
	if same == nil {
		return
	}
	id, err := b.Identity(ctx)
	switch other, twice := same[id]; {
	case err != nil:
		d.find("independent", backend.Warn,
			"the node does not tell which server it is: "+reason(err),
			"let its user run INFO; or see yourself that no server is listed twice")
	case twice:
		d.find("independent", backend.Fail, "it is the same server as "+other,
			"name servers that fail independently: one vote must not count twice")
	case schemeOf(u) == "file": // safeguard: folders-are-one-machine
		same[id] = d.store
		d.find("independent", backend.Warn,
			"it is a folder of this machine: "+
				"each machine asks one of its own, and they all fail with it",
			"name servers, unless all who lock are on this machine, where one folder does")
	default:
		same[id] = d.store
		d.find("independent", backend.OK, "no other node is the same server", "")
	}
}

// claim is one of the doctor's own, which ends soon if it is left.
func claim(b backend.Backend, key string) backend.Claim {
	caps := b.Capabilities()
	ttl := max(caps.MinTTL, 10*time.Second)
	if caps.MaxTTL > 0 {
		ttl = min(ttl, caps.MaxTTL)
	}
	return backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: ttl}
}

// takes takes a lock and frees it, and reports whether that went well.
func (d *doctor) takes(ctx context.Context, b backend.Backend, u config.URL, key string) bool {
	c := claim(b, key)
	_, err := b.TryAcquire(ctx, c)
	if _, released := b.Release(ctx, c); err == nil {
		err = released
	}
	if errors.Is(err, backend.ErrQuarantined) {
		d.find("lock", backend.Warn, reason(err),
			"nothing, if that was meant; locks are granted again after that time")
		return false
	}
	if err != nil {
		d.find("lock", backend.Fail, "a lock cannot be taken and freed: "+reason(err),
			doctorAdvice(&storeError{Store: u, Err: err}))
		return false
	}
	d.find("lock", backend.OK, "taken and freed", "")
	return true
}

// speed measures requests beside the TTL. A renewal comes each third of it, and may need a second
// try.
func (d *doctor) speed(ctx context.Context, b backend.Backend, key string, ttl time.Duration) {
	var took []time.Duration
	for range roundTrips {
		began := time.Now()
		if _, err := b.Inspect(ctx, key); err != nil {
			d.find("round trip", backend.Fail, "a lock cannot be read: "+reason(err), remedy(err))
			return
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	half, most := took[len(took)/2], took[len(took)-1]
	text := fmt.Sprintf("%s, the slowest of %d %s, with a TTL of %s",
		ago(half), roundTrips, ago(most), ago(ttl))
	const change = longerTTL + ", or a store that is closer"
	switch {
	case most > ttl/3:
		d.find("round trip", backend.Fail, text+": a renewal may come too late", change)
	case half > ttl/30:
		d.find("round trip", backend.Warn,
			text+": little time to renew again after a failure", change)
	default:
		d.find("round trip", backend.OK, text, "")
	}
}

// wakes has one claim wait for another.
func (d *doctor) wakes(ctx context.Context, b backend.Backend, key string) {
	const check, polls = "wake-ups", "who waits polls: "
	caps := b.Capabilities()
	if !caps.Watch {
		d.find(check, backend.OK, "not with this store: who waits polls", "")
		return
	}
	first, second := claim(b, key), claim(b, key)
	second.Queue, second.WaiterTTL = caps.Queue, second.TTL
	defer func() { _, _ = b.Release(ctx, second) }()
	watching, end := context.WithCancel(ctx)
	defer end()
	_, err := b.TryAcquire(ctx, first)
	var woken <-chan backend.Wake
	var began time.Time
	if err == nil {
		defer func() { _, _ = b.Release(ctx, first) }()
		woken, err = b.Watch(watching, second)
	}
	if err == nil {
		if _, err = b.TryAcquire(ctx, second); errors.Is(err, backend.ErrHeld) {
			began = time.Now()
			_, err = b.Release(ctx, first)
		}
	}
	if err != nil {
		d.find(check, backend.Warn, polls+reason(err),
			"for Redis, allow SUBSCRIBE, UNSUBSCRIBE and PUBLISH on the channels")
		return
	}
	limit := time.NewTimer(wakeLimit)
	defer limit.Stop()
	select {
	case _, open := <-woken:
		if open {
			d.find(check, backend.OK, "after "+ago(time.Since(began))+", the release included", "")
			return
		}
	case <-limit.C:
	case <-ctx.Done():
	}
	d.find(check, backend.Warn, polls+"no message came that the lock is free",
		"see that nothing between here and the store drops its messages")
}

func (d *doctor) lists(ctx context.Context, b backend.Backend, prefix string) {
	for _, err := range b.List(ctx, prefix) {
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			d.find("list", backend.OK, "not with this store", "")
			return
		case err != nil:
			d.find("list", backend.Warn, "locks cannot be listed: "+reason(err),
				"for Redis, allow SCAN; only holdfast list and top need it")
			return
		}
	}
	d.find("list", backend.OK, "locks can be listed", "")
}

// deadlocks tells who waits for each other; where it cannot be seen, lists has said why.
func (d *doctor) deadlocks(ctx context.Context, b backend.Backend, namespace string) {
	all, _ := locker.Deadlocks(ctx, b, namespace)
	for _, cycle := range all {
		d.find("deadlock", backend.Warn, deadlock(cycle),
			"end one of them, and lock keys in one order, or set break_deadlocks where they lock")
	}
}

// deadlock says who waits for whom.
func deadlock(cycle []locker.Waiting) string {
	var all []string
	for _, w := range cycle {
		all = append(all, w.String())
	}
	return strings.Join(all, "; ")
}
