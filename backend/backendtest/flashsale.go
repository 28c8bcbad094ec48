package backendtest

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// FlashSale has four processes of eight buyers each buy the units of one stock, which is a value in
// a locker.Store at url, and kills one process after the other with SIGKILL while they do; another
// takes its place. At the end sold and left must be the stock, and no process may have heard of a
// sale that the store does not have. The package calls [Main], as for [Processes].
//
// covers: G6
func FlashSale(t *testing.T, url string, units int) {
	t.Helper()
	calibrate()
	ttl, _ := leaseFor(t, url)
	dir := t.TempDir()
	key := "sale-" + rand.Text()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
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
	if err := s.Update(ctx, key, func(sale) (sale, error) { return sale{Left: units, Sold: map[string]int{}}, nil }); err != nil {
		t.Fatal(err)
	}

	const processes, kills = 4, 3
	killed := map[string]bool{}
	var all []*process
	start := func() {
		name := fmt.Sprint("p", len(all))
		p := startWorker(t, orders{URL: url, Key: key, TTL: ttl, Name: name, History: filepath.Join(dir, name), Sale: true})
		all = append(all, p)
	}
	for range processes {
		start()
	}
	for n := range kills { // in the order in which they came, as the sale goes on
		victim := all[n]
		victim.await(t, "to sell", 2*ttl+5*patience, func() bool { return victim.locked > units/(4*processes) })
		killed[victim.name] = true
		victim.kill()
		start()
	}
	for _, p := range all[kills:] {
		select {
		case <-p.ended:
		case <-ctx.Done():
			t.Fatalf("process %s does not end", p.name)
		}
		if p.err != nil {
			t.Errorf("process %s: %v\n%s", p.name, p.err, p.stderr.String())
		}
	}

	end, token, err := s.Get(ctx, key)
	if err != nil || token == 0 {
		t.Fatalf("Get: token %d, %v", token, err)
	}
	sold := 0
	for _, p := range all {
		inStore := end.Sold[p.name]
		sold += inStore
		heard, unknown := heardOf(t, filepath.Join(dir, p.name))
		if killed[p.name] {
			unknown += workersEach // each may have been killed between the save and its note of it
		}
		if inStore < heard || inStore > heard+unknown {
			t.Errorf("process %s heard of %d sales, and of %d not for sure; the store has %d", p.name, heard, unknown, inStore)
		}
	}
	if end.Left != 0 || sold != units {
		t.Errorf("sold %d and left %d of %d", sold, end.Left, units)
	}
	t.Logf("sold %d by %v, %v were killed", sold, end.Sold, killed)
}

// heardOf counts the sales that a process has noted, and those of which it did not know.
func heardOf(t *testing.T, path string) (heard, unknown int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "sold\n"), strings.Count(string(text), "unknown\n")
}

// sell buys for the process until the stock is sold out, or the parent closes our input.
func sell(o orders) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		}
		cancel()
		time.AfterFunc(2*patience, func() { os.Exit(2) })
	}()
	b, err := backend.Open(ctx, o.URL)
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
	var mu sync.Mutex
	note := func(line string) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := journal.WriteString(line + "\n")
		fmt.Println(sayLocked)
		return err
	}
	buy := func() error {
		for {
			err := s.Update(ctx, o.Key, func(v sale) (sale, error) {
				if v.Left == 0 {
					return v, errSoldOut
				}
				v.Left--
				v.Sold[o.Name]++
				return v, nil
			})
			switch {
			case errors.Is(err, errSoldOut), ctx.Err() != nil:
				return nil
			case err == nil:
				err = note("sold")
			case errors.Is(err, locker.ErrUnknown):
				err = note("unknown")
			case errors.Is(err, locker.ErrLost):
				err = nil // nothing was sold
			}
			if err != nil {
				return err
			}
		}
	}
	errs := make(chan error, workersEach)
	for range workersEach {
		go func() { errs <- buy() }()
	}
	for range workersEach {
		if e := <-errs; e != nil && err == nil {
			err = e
			cancel()
		}
	}
	return err
}
