package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// A listing is a server with pages of locks that somebody holds.
type listing struct {
	Transport // what is not needed

	l     script.Layout
	pages [][]string
	asked func(page int) // called before a page

	mu   sync.Mutex
	most int // keys in one request
}

func (l *listing) Run(_ context.Context, r Request) (any, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = max(l.most, len(r.Keys))
	lock, reply := []any{"$60000 " + script.Held(7, "15000 o 1 ")}, []any{int64(1), "0", "0"}
	if r.Script == l.l.Heartbeat([]backend.Claim{fresh()}).Script {
		lock, reply = []any{"1", int64(7), int64(0), ""}, reply[:1]
	}
	for range r.Keys {
		reply = append(reply, lock...)
	}
	return reply, 0, nil
}

func (l *listing) Scan(_ context.Context, _ string, page func([]string) bool) error {
	for n, names := range l.pages {
		if l.asked != nil {
			l.asked(n)
		}
		var keys []string
		for _, name := range names {
			keys = append(keys, l.l.Key(name))
		}
		if !page(keys) {
			return nil
		}
	}
	return nil
}

func listed(t *testing.T, pages ...[]string) (*Store, *listing) {
	t.Helper()
	s, err := New(&Config{}, "redis")
	if err != nil {
		t.Fatal(err)
	}
	srv := &listing{l: s.Layout, pages: pages}
	s.Use(srv)
	return s, srv
}

// Close in a loop over the locks does not wait for the loop, which ends then; nor does it for one
// that was left.
//
// covers: I11
func TestCloseInALoopOverList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := listed(t, []string{"a", "b"}, []string{"c"})
		var names []string
		var ended error
		for l, err := range s.List(t.Context(), "") {
			if ended = err; err == nil {
				names = append(names, l.Key)
				_ = s.Close()
			}
		}
		if !slices.Equal(names, []string{"a", "b"}) || !errors.Is(ended, backend.ErrClosed) {
			t.Errorf("listed %q, %v; want the page that was read, and ErrClosed", names, ended)
		}

		s, _ = listed(t, []string{"a", "b"}, []string{"c"})
		for _, err := range s.List(t.Context(), "") {
			if err != nil {
				t.Error(err)
			}
			break
		}
		func() {
			defer func() { _ = recover() }()
			for _, err := range s.List(t.Context(), "") {
				if err != nil {
					t.Error(err)
				}
				panic("in a caller's loop")
			}
		}()
		_ = s.Close()
	})
}

// Close waits for each page of a list that is asked for, which would go by a client that is closed.
func TestCloseWaitsForAPageOfAList(t *testing.T) {
	for last := range 2 {
		synctest.Test(t, func(t *testing.T) {
			s, srv := listed(t, []string{"a"}, []string{"b"})
			closed := make(chan struct{})
			srv.asked = func(page int) {
				if page != last {
					return
				}
				go func() {
					defer close(closed)
					_ = s.Close()
				}()
				synctest.Wait()
				select {
				case <-closed:
					t.Errorf("closed while page %d is asked for", page)
				default:
				}
			}
			for l, err := range s.List(t.Context(), "") {
				if err != nil && !errors.Is(err, backend.ErrClosed) {
					t.Errorf("%q, %v", l.Key, err)
				}
			}
			<-closed
		})
	}
}

// Several locks are in one script only where all are known to be on one server: a client of another
// kind may be that of a cluster, which refuses keys of several slots.
func TestManyLocksAreOnOneServer(t *testing.T) {
	names := []string{"a", "b", "c"}
	claims := make([]backend.Claim, len(names))
	for i := range claims {
		claims[i] = fresh()
		claims[i].Key, claims[i].Queue, claims[i].WaiterTTL = names[i], true, claims[i].TTL
	}
	for most, know := range map[int]func(*Store){1: func(*Store) {}, 3: (*Store).OnOneServer} {
		s, srv := listed(t, names)
		know(s)
		answers, err := s.Heartbeat(t.Context(), claims)
		for _, answer := range answers {
			if err != nil || !errors.Is(answer, backend.ErrHeld) {
				t.Errorf("heartbeat: %v, %v", answer, err)
			}
		}
		if srv.most != most {
			t.Errorf("a heartbeat has %d keys in one request, want %d", srv.most, most)
		}
		srv.most = 0
		n := 0
		for _, err := range s.List(t.Context(), "") {
			if n++; err != nil {
				t.Error(err)
			}
		}
		if srv.most != most || n != len(names) {
			t.Errorf("a list of %d has %d keys in one request, want %d", n, srv.most, most)
		}
	}
}
