package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// inLine is a fresh claim that is queued.
func inLine(key string) backend.Claim {
	c := claim(key)
	c.Queue, c.WaiterTTL, c.NoneInFlight = true, 20*time.Second, true
	return c
}

func standing(t testing.TB, b backend.Backend, c backend.Claim) *backend.HeldError {
	t.Helper()
	_, err := b.TryAcquire(t.Context(), c)
	var held *backend.HeldError
	if !errors.As(err, &held) || held.Position == 0 {
		t.Fatalf("TryAcquire: %v, want a place in the queue", err)
	}
	return held
}

func watching(t testing.TB, b *Backend, c backend.Claim) <-chan backend.Wake {
	t.Helper()
	wake, err := b.Watch(t.Context(), c)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	return wake
}

// handed waits for a grant; other signals are spurious.
func handed(t testing.TB, wake <-chan backend.Wake) backend.Grant {
	t.Helper()
	for end := time.After(patience); ; {
		select {
		case w, ok := <-wake:
			if !ok {
				t.Fatal("the watch was closed")
			}
			if w.Granted {
				return w.Grant
			}
		case <-end:
			t.Fatal("nothing was handed over")
		}
	}
}

// Whoever is let in is told, with the grant, and nobody else is; all messages come on one channel.
//
// covers: W13
func TestOneChannelForTheLine(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL())
	k := key(t)
	holder := inLine(k)
	acquired(t, b, holder)
	const n = 20
	var line []backend.Claim
	var wakes []<-chan backend.Wake
	var refusals []*backend.HeldError
	for range n {
		c := inLine(k)
		wakes = append(wakes, watching(t, b, c))
		refusals = append(refusals, standing(t, b, c))
		line = append(line, c)
	}
	if channels := srv.MustDo("PUBSUB", "CHANNELS"); channels != "["+b.store.Layout.ClientChannel()+
		"]" {
		t.Errorf("channels %s", channels)
	}
	for i, c := range line {
		want(t, "release", storetest.Release(t.Context(), b, holder), nil)
		g := handed(t, wakes[i])
		if g.Token <= refusals[i].Token || g.TTL != c.WaiterTTL {
			t.Errorf("handed over %+v after a refusal at %d", g, refusals[i].Token)
		}
		for j := i + 1; j < n; j++ {
			select {
			case w := <-wakes[j]:
				t.Errorf("%d was woken with %+v, as %d was let in", j, w, i)
			default:
			}
		}
		want(t, "renew what was handed over", b.Renew(t.Context(), c), nil)
		holder = c
	}
}

// The connection is down while the key is handed over: every watcher is woken when it is back, and
// asks.
//
// covers: W2, R21
func TestMissedHandOff(t *testing.T) {
	p, b, direct := behind(t, "")
	holder, waiter, other := claim(key(t)), inLine(""), inLine(key(t))
	waiter.Key = holder.Key
	acquired(t, direct, holder)
	wake, elsewhere := watching(t, b, waiter), watching(t, b, other)
	_ = standing(t, b, waiter)
	p.Set(testserver.Fault{Mode: testserver.Refuse})
	p.CutAll()
	want(t, "release", storetest.Release(t.Context(), direct, holder), nil)
	p.Pass()
	woken(t, wake)
	woken(t, elsewhere)
	acquired(t, b, waiter)
}

// A message that was late is about a grant that the claim's last answer knew of: its token is not
// above it.
//
// covers: W3
func TestLateMessage(t *testing.T) {
	b := opened(t, testserver.SharedRedis(t).URL())
	holder, waiter := claim(key(t)), inLine("")
	waiter.Key, waiter.WaiterTTL = holder.Key, 20*time.Millisecond
	acquired(t, b, holder)
	wake := watching(t, b, waiter)
	_ = standing(t, b, waiter)
	want(t, "release", storetest.Release(t.Context(), b, holder), nil)
	late := handed(t, wake)
	eventually(t, "the grant to lapse", func() error {
		_, err := b.TryAcquire(t.Context(), claim(holder.Key))
		return err
	})
	if held := standing(t, b, waiter); held.Token < late.Token {
		t.Errorf("refused at token %d, after a grant of %d", held.Token, late.Token)
	}
}

// A watch that comes after the message, or while a signal waits in its slot, loses no grant. What
// is no message is ignored.
func TestNewestGrantIsInTheSlot(t *testing.T) {
	b := opened(t, testserver.SharedRedis(t).URL())
	c := inLine(key(t))
	wake := watching(t, b, c)
	b.store.Waiters().Queue.WakeAll(backend.Wake{})
	for _, message := range []string{
		"", "free", fmt.Sprint("7 1 1000 ", b.store.Layout.Topic(c)),
		"junk", fmt.Sprint("9 1 1000 ", b.store.Layout.Topic(c)),
	} {
		if err := b.client.Publish(t.Context(), b.store.Layout.ClientChannel(),
			message).Err(); err != nil {
			t.Fatal(err)
		}
	}
	last := inLine(key(t)) // behind them on the same connection
	seen := watching(t, b, last)
	if err := b.client.Publish(t.Context(), b.store.Layout.ClientChannel(),
		fmt.Sprint("1 1 1000 ", b.store.Layout.Topic(last))).Err(); err != nil {
		t.Fatal(err)
	}
	handed(t, seen)
	if g := handed(t, wake); g.Token != 9 {
		t.Errorf("the slot has token %d, want the newest, 9", g.Token)
	}
}

// The client's channel goes when nobody of it is queued any more.
//
// covers: G1
func TestNobodyInLine(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL())
	b.store.Waiters().Idle = 5 * time.Millisecond
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := b.Watch(ctx, inLine(key(t))); err != nil {
			t.Fatal(err)
		}
		cancel()
		eventually(t, "the connection to go", func() error {
			if list := srv.MustDo("CLIENT", "LIST", "TYPE", "pubsub"); list != "" {
				return fmt.Errorf("%s", list)
			}
			return nil
		})
	}
}

// With the memory used up a release still hands over, and readers, who share fields, can still be
// kept and given back.
//
// covers: R6
func TestHandOffOutOfMemory(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL())
	holder, waiter, newcomer := inLine(key(t)), inLine(""), inLine("")
	waiter.Key, newcomer.Key = holder.Key, holder.Key
	acquired(t, b, holder)
	_ = standing(t, b, waiter)
	first, second := inLine(key(t)), inLine("")
	second.Key, first.Mode, second.Mode = first.Key, backend.Shared, backend.Shared
	acquired(t, b, first)
	acquired(t, b, second)
	srv.MustDo("CONFIG", "SET", "maxmemory", "1")
	_ = standing(t, b, waiter) // a place is kept, but not given
	_, err := b.TryAcquire(t.Context(), newcomer)
	want(t, "a new place", err, backend.ErrUnavailable)
	want(t, "release", storetest.Release(t.Context(), b, holder), nil)
	acquired(t, b, waiter)
	want(t, "release by a reader", storetest.Release(t.Context(), b, first), nil)
	want(t, "renewal by the other", b.Renew(t.Context(), second), nil)
	want(t, "its release", storetest.Release(t.Context(), b, second), nil)
}
