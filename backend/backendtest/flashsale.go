package backendtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// A sale is what a flash sale keeps in a locker.Store: one value, so that what is left and what was
// sold change together.
type sale struct {
	Left int
	Sold map[string]int // by process
}

var errSoldOut = errors.New("sold out")

var unitsFlag = flag.Int("backendtest.units", 600, "the units that FlashSale sells")

// FlashSale has four processes of eight buyers each buy the units of one stock, which is a value in
// a locker.Store at url. While they do, a process is killed with SIGKILL every second, and another
// takes its place; and one that is about to buy is stopped with SIGSTOP for three TTLs or more. At
// the end sold and left must be the stock, and no process may have heard of a sale that the store
// does not have, nor the one that was stopped have bought what it was about to. The package calls
// [Main], as for [Processes].
//
// The stock is 600 units, or as many as the flag -backendtest.units says, and no more processes are
// killed than one for 100 units. A buyer takes its time, so that a sale lasts for five seconds or
// more.
//
// covers: G6, B11
func FlashSale(t *testing.T, url string) {
	t.Helper()
	if testing.Short() {
		t.Skip("seconds of all processors")
	}
	calibrate()
	units := *unitsFlag
	ttl, _ := leaseFor(t, url, time.Second)
	dir := t.TempDir()
	key := "sale-" + rand.Text()
	ctx, cancel := context.WithTimeout(t.Context(), slower(10*time.Minute))
	defer cancel()
	b, err := backend.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	s, err := locker.NewStore(b, locker.JSON[sale](), locker.Config{TTL: ttl, Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Update(ctx, key, func(context.Context, sale) (sale, error) {
		return sale{Left: units, Sold: map[string]int{}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	get := func() sale {
		t.Helper()
		v, token, err := s.Get(ctx, key)
		if err != nil || token == 0 {
			t.Fatalf("Get: token %d, %v", token, err)
		}
		return v
	}

	const processes, lasting = 4, 5 * time.Second
	var all []*process
	start := func() {
		name := fmt.Sprint("p", len(all))
		all = append(all, startWorker(t, orders{
			URL: url, Key: key, TTL: ttl, Name: name, History: filepath.Join(dir, name), Sale: true,
			Work: lasting / time.Duration(units),
		}))
	}
	for range processes {
		start()
	}
	stopped := all[processes-1]
	stopped.tell(t, sayHold)
	// Where a verb of a process keeps others from the key, as with file://, one that is stopped in
	// the middle of a verb keeps them from it until it goes on. So it is stopped again until the
	// key answers.
	answers := func() bool {
		ctx, cancel := context.WithTimeout(ctx, ttl/4)
		defer cancel()
		c := backend.Claim{Key: key, Owner: rand.Text(), TTL: ttl}
		_, err := b.TryAcquire(ctx, c)
		if err == nil {
			_, _ = b.Release(ctx, c)
		}
		return errors.Is(err, backend.ErrHeld)
	}
	for {
		stopped.mu.Lock()
		stopped.holding = false
		stopped.mu.Unlock()
		stopped.await(t, "to be about to buy", 2*ttl+5*patience, func() bool {
			return stopped.holding
		})
		if err = stopped.freeze(); err != nil || answers() {
			break
		}
		if err := stopped.thaw(); err != nil {
			t.Fatal(err)
		}
	}
	wasStopped := err == nil
	if !wasStopped && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	before, goesOn := get().Left, time.Now().Add(3*ttl)
	thaw := func() {
		t.Helper()
		goesOn = time.Time{}
		if wasStopped {
			if get().Left == before {
				t.Errorf("nobody bought anything in %v and more in which a process was stopped "+
					"that was about to", 3*ttl)
			}
			if err := stopped.thaw(); err != nil {
				t.Fatal(err)
			}
		}
		stopped.tell(t, sayGoOn)
	}

	killed := map[*process]bool{}
	every := time.NewTicker(slower(time.Second))
	defer every.Stop()
	for next := 0; ; {
		<-every.C
		left := get().Left
		// The other buyers of the stopped process are in the queue, too: until their places lapse,
		// the lock may be handed over to them, each time for a lease.
		if late := time.Since(goesOn); !goesOn.IsZero() && late > 0 &&
			(left < before || late > 2*ttl+5*patience) {
			thaw()
		}
		if left == 0 {
			break
		}
		switch victim := all[next]; {
		case victim == stopped:
			next++
		// Whoever is killed next may be the one that has got the lock.
		case !goesOn.IsZero() && left == before:
		// On a slow machine the sale must go on, too.
		case victim.count() > 0 && len(killed) < units/100:
			killed[victim] = true
			victim.kill()
			start()
			next++
		}
		if ctx.Err() != nil {
			t.Fatal("the sale does not end")
		}
	}
	if !goesOn.IsZero() {
		thaw()
	}
	for _, p := range all {
		if killed[p] {
			continue
		}
		select {
		case <-p.ended:
		case <-ctx.Done():
			t.Fatalf("process %s does not end", p.name)
		}
		if p.err != nil {
			t.Errorf("process %s: %v\n%s", p.name, p.err, p.stderr.String())
		}
	}

	end := get()
	sold := 0
	for _, p := range all {
		inStore := end.Sold[p.name]
		sold += inStore
		heard, unknown, lost := heardOf(t, filepath.Join(dir, p.name))
		if killed[p] {
			unknown += workersEach // each may have been killed between the save and its note of it
		}
		if inStore < heard || inStore > heard+unknown {
			t.Errorf("process %s heard of %d sales, and of %d not for sure; the store has %d",
				p.name, heard, unknown, inStore)
		}
		if p == stopped && lost == 0 && wasStopped {
			t.Errorf("process %s was stopped for three TTLs when it was about to buy, "+
				"and lost nothing", p.name)
		}
	}
	if end.Left != 0 || sold != units {
		t.Errorf("sold %d and left %d of %d", sold, end.Left, units)
	}
	if len(killed) == 0 {
		t.Error("the sale ended before a process was killed")
	}
	t.Logf("sold %d by %v; %d were killed", sold, end.Sold, len(killed))
}

// heardOf counts the sales that a process has noted, those of which it did not know, and those that
// it lost.
func heardOf(t *testing.T, path string) (heard, unknown, lost int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	count := func(line string) int { return strings.Count(string(text), line+"\n") }
	return count("sold"), count("unknown"), count("lost")
}

// sell buys for the process until the stock is sold out, or the parent closes our input.
func sell(o orders) error {
	b, err := backend.Open(context.Background(), o.URL)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	s, err := locker.NewStore(b, locker.JSON[sale](), locker.Config{TTL: o.TTL, Logger: discard})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	journal, err := os.OpenFile(o.History, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = journal.Close() }()
	c := &team{orders: o}
	note := func(line string) error { // at once: O_APPEND
		_, err := journal.WriteString(line + "\n")
		return err
	}
	return serve(workersEach, func(line string) {
		c.hold.Store(line == sayHold)
	}, func(ctx context.Context, _ string) error {
		for {
			var stood bool
			err := s.Update(ctx, o.Key, func(_ context.Context, v sale) (sale, error) {
				if v.Left == 0 {
					return v, errSoldOut
				}
				time.Sleep(o.Work)
				stood = c.stand(ctx)
				v.Left--
				v.Sold[o.Name]++
				return v, nil
			})
			switch {
			case stood && !errors.Is(err, locker.ErrLost):
				return fmt.Errorf("a buyer that was stopped for longer than its lease was told %w",
					cmp.Or(err, errBought))
			case errors.Is(err, errSoldOut):
				return nil
			case err == nil:
				err = note("sold")
				c.say(sayLocked)
			case errors.Is(err, locker.ErrUnknown):
				err = note("unknown")
			case errors.Is(err, locker.ErrLost): // nothing was sold
				err = note("lost")
			case silent(err):
				err = nil
			}
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}

// silent reports whether nothing was locked as the store gave no answer in time. That is what it
// looks like to a process that was stopped: it tries again.
func silent(err error) bool {
	return errors.Is(err, locker.ErrNotAcquired) && !backend.Refused(err)
}

var errBought = errors.New("that it bought")

// stand holds for as long as the parent wants, and reports whether the process was stopped
// meanwhile for more than two TTLs.
func (c *team) stand(ctx context.Context) (stopped bool) {
	for c.hold.Load() && ctx.Err() == nil {
		c.say(sayHolding)
		began := time.Now()
		time.Sleep(c.TTL / 20)
		stopped = stopped || time.Since(began) > 2*c.TTL
	}
	return stopped
}
