package backendtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
)

// sayTicket begins the line with a ticket, from a worker and to all of them.
const sayTicket = "ticket "

// Relay has three processes hand the hold of one lock of the store at url on by tickets, each of
// which goes to all of them, and kills one after the other with SIGKILL, wherever it is in that. No
// two beliefs may overlap. The package calls [Main], as for [Processes].
//
// covers: G6, B4
func Relay(t *testing.T, url string) {
	t.Helper()
	calibrate()
	ttl, _ := leaseFor(t, url, time.Second)
	dir := t.TempDir()
	key := "relay-" + rand.Text()
	rec, err := history.NewRecorder(filepath.Join(dir, "parent"), "parent")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var running []*process
	files := []string{filepath.Join(dir, "parent")}
	forward := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range running {
			_, _ = io.WriteString(p.stdin, line+"\n") // fails for one that was just killed
		}
	}
	start := func() {
		name := fmt.Sprint("p", len(files))
		files = append(files, filepath.Join(dir, name))
		p := startWorker(t, orders{
			URL: url, Key: key, TTL: ttl, Name: name,
			History: filepath.Join(dir, name), Relay: true,
		})
		p.mu.Lock()
		p.ticket = forward
		p.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		running = append(running, p)
	}
	const processes, kills = 3, 5
	for range processes {
		start()
	}
	for range kills {
		victim := running[0]
		victim.await(t, "to adopt", 4*ttl+5*patience, func() bool { return victim.locked >= 5 })
		// Before the signal: from now on it believes nothing.
		if err := rec.Killed(victim.name); err != nil {
			t.Fatal(err)
		}
		victim.kill()
		mu.Lock()
		running = running[1:]
		mu.Unlock()
		start()
	}
	adopted := 0
	for _, p := range running {
		p.await(t, "to adopt", 4*ttl+5*patience, func() bool { return p.locked >= 5 })
		p.stop(t)
		adopted += p.count()
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	events, err := history.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	if err := history.Join(history.Check(events)); err != nil {
		t.Error(err)
	}
	t.Logf("%d holds; those who lived to the end adopted %d", len(events), adopted)
}

// relay locks, adopts what it is sent, and hands it on.
func relay(o orders) error {
	c := &team{orders: o}
	tickets := make(chan locker.Ticket, 100)
	heard := func(line string) {
		var t locker.Ticket
		if text, ok := strings.CutPrefix(line, sayTicket); !ok ||
			json.Unmarshal([]byte(text), &t) != nil {
			return
		}
		select {
		case tickets <- t:
		default: // too many: its lease ends
		}
	}
	return c.run(locker.Bare, nil, heard, func(ctx context.Context, worker string) error {
		return c.relay(ctx, worker, tickets, worker == "0")
	})
}

// relay is one worker's part: the first locks, the others adopt.
func (c *team) relay(ctx context.Context, worker string, tickets <-chan locker.Ticket,
	locks bool,
) error {
	for ctx.Err() == nil {
		event := history.Event{Worker: worker, Key: c.Key, Asked: history.Now()}
		var g *locker.Guard[struct{}]
		var err error
		if locks {
			if g, err = c.locker.Lock(ctx, c.Key,
				locker.Reentrant(backend.NewOwner())); err == nil {
				event.Token = g.Hold().Token // a hold that is adopted has the same
			}
		} else {
			select {
			case t := <-tickets:
				g, err = c.locker.Adopt(ctx, t)
			case <-ctx.Done():
				return nil
			}
		}
		switch {
		case err == nil:
			if err := c.believe(ctx, g, event); err != nil {
				return err
			}
			if !locks {
				c.say(sayLocked)
			}
		case errors.Is(err, locker.ErrLost), ctx.Err() != nil:
			continue
		default:
			return err
		}
		if mathrand.N(10) == 0 || ctx.Err() != nil {
			err = g.Unlock()
		} else if t, detached := g.Detach(); detached == nil {
			text, _ := json.Marshal(t)
			c.say(sayTicket + string(text))
		} else {
			err = detached
		}
		if err != nil && !errors.Is(err, locker.ErrLost) {
			return err
		}
	}
	return nil
}
