package redissim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/smallredis"
)

// addr is the server's, in redirections.
func (s *server) addr() string { return strconv.Itoa(s.index) }

// slot is what the server knows of the slot of a key. There is one for each tag.
func (s *server) slot(key string) *smallredis.Slot {
	tag := script.HashTag(key)
	if slot := s.slots[tag]; slot != nil {
		return slot
	}
	if first := s.w.servers[hash(tag)%uint64(len(s.w.servers))]; first != s {
		return &smallredis.Slot{Owner: first.addr()}
	}
	return nil
}

// moveSlot moves the slot of a lock to another server, as redis-cli does: both are told, its keys
// go one by one, and then first the one that has it learns so, the other, and the rest. It is not
// moved again before. Nobody is told of what is lost on the way, as nothing is.
func (w *world) moveSlot(r *rand.Rand) {
	tag := w.keys[r.IntN(len(w.keys))]
	to, from := w.servers[r.IntN(len(w.servers))], (*server)(nil)
	for _, s := range w.servers {
		switch slot := s.slot(tag); {
		case slot == nil || *slot == (smallredis.Slot{}):
			from = s
		case slot.Owner != "" && slot.From == "":
		default:
			return // it is being moved
		}
	}
	if from == nil || from == to || w.unaware[tag] {
		return
	}
	w.unaware[tag] = true
	to.slots[tag], from.slots[tag] = &smallredis.Slot{Owner: from.addr(), From: from.addr()},
		&smallredis.Slot{To: to.addr()}
	w.net.note("the slot of %s moves from server %d to %d", tag, from.index, to.index)
	again := func(f func()) {
		d := time.Duration(1 + r.IntN(1000))
		if !w.quiet {
			d += fraction(r, w.ttl/4)
		}
		w.net.at(time.Now().Add(d), f)
	}
	var step func()
	step = func() {
		left := slices.DeleteFunc(from.redis.Keys(), func(key string) bool {
			return script.HashTag(key) != tag
		})
		switch now := time.Now(); {
		case now.Before(from.paused) || now.Before(to.paused):
			again(step)
		case len(left) > 0:
			key := left[r.IntN(len(left))]
			w.net.note("%s moves", key)
			from.redis.Migrate(key, to.redis)
			again(step)
		default:
			w.net.note("the slot of %s has moved", tag)
			to.slots[tag] = &smallredis.Slot{}
			again(func() {
				from.slots[tag] = &smallredis.Slot{Owner: to.addr()}
				again(func() {
					for _, s := range w.servers {
						if s != to {
							s.slots[tag] = &smallredis.Slot{Owner: to.addr()}
						}
					}
					w.unaware[tag] = false
				})
			})
		}
	}
	again(step)
}

// serverOf returns the server that a key is on as far as the client knows, by its hash tag as in a
// cluster.
func (l link) serverOf(key string) *server {
	tag := script.HashTag(key)
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if s := l.c.slots[tag]; s != nil {
		return s
	}
	return l.to[hash(tag)%uint64(len(l.to))]
}

// at sends a request to the server of a key, and once more where that says that the slot is or
// goes, as both libraries do.
func (l link) at(ctx context.Context, key, name, id string,
	execute func(*server) (any, error),
) (any, error) {
	reply, err := l.do(ctx, l.serverOf(key), name, id, execute)
	addr, asking := smallredis.Redirect(err)
	if addr == "" {
		return reply, err
	}
	index, err := strconv.Atoi(addr)
	if err != nil {
		return nil, err
	}
	if !asking {
		l.c.mu.Lock()
		l.c.slots[script.HashTag(key)] = l.to[index]
		l.c.mu.Unlock()
	}
	return l.do(ctx, l.to[index], name+" at server "+addr, id, func(s *server) (any, error) {
		if asking {
			_, _ = s.redis.Do("ASKING")
		}
		return execute(s)
	})
}

// TestMovingSlot has scripts meet a lock whose slot is being moved. One that would delete the lock,
// to make it another form, would be refused the making: it is to write nothing.
//
// covers: R12
func TestMovingSlot(t *testing.T) {
	s := smallredis.New(time.Now, strings.Repeat("a", 40))
	l, err := script.NewLayout("", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	eval := func(r script.Request) error {
		_, err := s.Eval(r.Script.Source(), r.Keys, r.Args)
		return err
	}
	held := backend.Claim{Key: "k", Owner: "holder", TTL: time.Hour}
	if err := eval(l.Acquire(held)); err != nil {
		t.Fatal(err)
	}
	before, _ := s.Do("GET", l.Key("k"))
	s.Slot = func(string) *smallredis.Slot { return &smallredis.Slot{To: "elsewhere"} }
	waits, withdrawn := held, held
	waits.Owner, waits.Queue, waits.WaiterTTL, withdrawn.Owner = "waiter", true, time.Hour, "gone"
	for name, r := range map[string]script.Request{
		"a waiter":    l.Acquire(waits),
		"a tombstone": l.Release(withdrawn),
	} {
		if err := eval(r); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
			t.Errorf("%s: %v, want TRYAGAIN", name, err)
		}
		if after, err := s.Do("GET", l.Key("k")); after != before {
			t.Errorf("%s left of the lock %q: %v %v", name, before, after, err)
		}
	}
	held.NoneInFlight = true
	if err := eval(l.Release(held)); err != nil {
		t.Errorf("release: %v", err)
	}
}

// TestStateThatHasYetToCome releases a lock at the server that its slot is moved to, and a claim
// that loads what was saved is let in: that is still at the other server, so the claim is to ask
// for it.
//
// covers: R12
func TestStateThatHasYetToCome(t *testing.T) {
	s := smallredis.New(time.Now, strings.Repeat("a", 40))
	l, err := script.NewLayout("", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	l = l.For("client")
	var told string
	s.Publish = func(_, payload string) int { told = payload; return 1 }
	held := backend.Claim{Key: "k", Owner: "holder", TTL: time.Hour, NoneInFlight: true}
	loads := backend.Claim{
		Key: "k", Owner: "loads", TTL: time.Hour, Load: true, Queue: true,
		WaiterTTL: time.Hour,
	}
	for _, r := range []script.Request{l.Acquire(held), l.Acquire(loads), l.Release(held)} {
		if r.Script == l.Release(held).Script {
			s.Slot = func(string) *smallredis.Slot {
				return &smallredis.Slot{Owner: "other", From: "other"}
			}
			_, _ = s.Do("ASKING")
		}
		if _, err := s.Eval(r.Script.Source(), r.Keys, r.Args); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasSuffix(told, "\n?") {
		t.Errorf("the claim was told %q, and not to ask", told)
	}
	r := l.Acquire(loads)
	_, _ = s.Do("ASKING")
	if _, err := s.Eval(r.Script.Source(), r.Keys, r.Args); err == nil ||
		!strings.HasPrefix(err.Error(), "TRYAGAIN ") {
		t.Errorf("asked for what has yet to come: %v, want TRYAGAIN", err)
	}
}
