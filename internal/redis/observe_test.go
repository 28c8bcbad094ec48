package redis

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// A tracked server has one key, and tells of changes or not.
type tracked struct {
	Transport // what is not needed

	track func(ctx context.Context, changed func()) error
	looks func() // called at each look

	mu    sync.Mutex
	owner string // empty for a free key
}

func (s *tracked) Run(context.Context, Request) (any, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks != nil {
		s.looks()
	}
	if s.owner == "" {
		return []any{int64(1), "0", "0", "$1000 " + script.Free(7)}, 0, nil
	}
	return []any{int64(1), "0", "0", "$60000 " + script.Held(7, "15000 "+s.owner+" 1 ")}, 0, nil
}

func (s *tracked) Track(ctx context.Context, _ string, changed func()) error {
	return s.track(ctx, changed)
}

func (s *tracked) Explain(err error) (failure Failure) {
	if !errors.Is(err, errLostReply) && !errors.Is(err, context.Canceled) {
		failure.Reply = err.Error()
	}
	return failure
}

func (s *tracked) hold(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = owner
}

// observed collects what Observe tells.
type observed struct {
	mu     sync.Mutex
	owners []string
	errs   []error
	ended  chan struct{}
}

func (o *observed) last() (owner string, n int) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if n = len(o.owners); n > 0 {
		owner = o.owners[n-1]
	}
	return owner, n
}

func observe(ctx context.Context, s *Store) *observed {
	o := &observed{ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		for state, err := range s.Observe(ctx, "k") {
			o.mu.Lock()
			owner := ""
			for _, h := range state.Holders {
				owner = h.Owner
			}
			if err != nil {
				o.errs = append(o.errs, err)
			} else {
				o.owners = append(o.owners, owner)
			}
			o.mu.Unlock()
		}
	}()
	return o
}

// observeTest runs test in a bubble, on a store whose server does what test says, before Observe.
func observeTest(t *testing.T, test func(*testing.T, *Store, *tracked)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(&Config{}, "redis")
		if err != nil {
			t.Fatal(err)
		}
		srv := &tracked{}
		s.Use(srv)
		test(t, s, srv)
		_ = s.Close()
	})
}

// The first look comes after the server has begun to tell: what happens between would be missed.
func TestFirstLookAfterTracking(t *testing.T) {
	observeTest(t, func(t *testing.T, s *Store, srv *tracked) {
		looks, active := 0, make(chan struct{})
		srv.looks = func() { looks++ }
		srv.track = func(ctx context.Context, changed func()) error {
			select {
			case <-active:
				changed()
				<-ctx.Done()
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		o := observe(ctx, s)
		if synctest.Wait(); looks != 0 {
			t.Error("it looked before the server was asked to tell")
		}
		close(active)
		if _, n := o.last(); n != 1 {
			t.Errorf("%d states", n)
		}
		cancel()
		<-o.ended
	})
}

// A connection that tells nothing, as one to a server that is the primary no more, is given up when
// the slow look finds what it has not told of.
func TestSilentTrackingIsRenewed(t *testing.T) {
	observeTest(t, func(t *testing.T, s *Store, srv *tracked) {
		var made int
		srv.track = func(ctx context.Context, changed func()) error {
			made++
			changed()
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		o := observe(ctx, s)
		o.last()
		time.Sleep(10 * backend.SlowLook)
		if synctest.Wait(); made != 1 {
			t.Errorf("%d connections while nothing happened, want one", made)
		}
		srv.hold("o")
		time.Sleep(backend.SlowLook + time.Second)
		if owner, _ := o.last(); owner != "o" || made != 2 {
			t.Errorf("holder %q, %d connections; want o, and a new one", owner, made)
		}
		cancel()
		<-o.ended
	})
}

// A connection that breaks is made anew, and each time it is looked again at once.
func TestLostTrackingIsMadeAnew(t *testing.T) {
	observeTest(t, func(t *testing.T, s *Store, srv *tracked) {
		broken := make(chan struct{})
		srv.track = func(ctx context.Context, changed func()) error {
			changed()
			select {
			case <-broken:
				return errLostReply
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		o := observe(t.Context(), s)
		for _, owner := range []string{"a", "b", "c"} {
			o.last()
			srv.hold(owner)
			broken <- struct{}{}
			time.Sleep(lastRestart) // at most
			if got, _ := o.last(); got != owner {
				t.Errorf("holder %q after a new connection, want %q", got, owner)
			}
		}
		_ = s.Close() // ends it
		<-o.ended
		if len(o.errs) != 1 || !errors.Is(o.errs[0], backend.ErrClosed) {
			t.Errorf("it ended with %v, want ErrClosed", o.errs)
		}
	})
}

// What a server says to CLIENT TRACKING, and what comes of it.
func TestTrackingRefusals(t *testing.T) {
	for reply, final := range map[string]bool{
		"NOPERM User app has no permissions to run the 'client|tracking' command":   true,
		"ERR unknown command 'CLIENT'":                                              true,
		"ERR Unknown subcommand or wrong number of arguments for 'TRACKING'":        true,
		"NOPROTO unsupported protocol version":                                      true,
		"LOADING Redis is loading the dataset in memory":                            false,
		"ERR max number of clients reached":                                         false,
		"WRONGPASS invalid username-password pair or user is disabled.":             false,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is 'no'.": false,
	} {
		s, err := New(&Config{}, "redis")
		if err != nil {
			t.Fatal(err)
		}
		s.Use(&tracked{})
		if got := s.untracked(errors.New(reply)); (got != nil) != final ||
			final && !errors.Is(got, errors.ErrUnsupported) {
			t.Errorf("%s: %v", reply, got)
		}
		if got := s.untracked(errLostReply); got != nil {
			t.Errorf("a lost connection is a refusal: %v", got)
		}
		_ = s.Close()
	}
}
