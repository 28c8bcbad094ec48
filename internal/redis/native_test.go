package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A fake is a server with one key, which is in its short form or not there, and the scripts as they
// are for that.
type fake struct {
	Transport // what is not needed

	l     script.Layout
	value string
	args  []string // of the last SET
	sent  []string // what was executed
	lose  bool     // the next reply
	err   string   // the reply to SET
	clock func() uint64
	dials atomic.Uint64
}

var errLostReply = errors.New("connection reset")

func (f *fake) answer(reply any) (any, int, error) {
	if f.lose {
		f.lose = false
		return nil, 0, errLostReply
	}
	return reply, 0, nil
}

func (f *fake) Run(_ context.Context, r Request) (any, int, error) {
	switch r.Script {
	case f.l.Acquire(backend.Claim{}).Script:
		f.sent = append(f.sent, "acquire")
		var last uint64
		if fields := strings.Fields(f.value); len(fields) > 2 {
			if fields[3] == r.Args[0] {
				_, _ = fmt.Sscan(fields[1], &last)
				return f.answer([]any{int64(1), int64(last), int64(1)})
			}
			return f.answer([]any{int64(2), int64(1000), "", int64(0), int64(0)})
		}
		_, _ = fmt.Sscanf(f.value, "h2 %d", &last)
		var minimum, ahead uint64
		if len(r.Args) > 7 {
			_, _ = fmt.Sscan(r.Args[6]+" "+r.Args[7], &minimum, &ahead)
		}
		clock := f.clock()
		last = max(last+1, clock, min(minimum, clock+ahead))
		f.value = script.Held(last, r.Args[2])
		if minimum != 0 {
			return f.answer([]any{int64(10), int64(last), int64(clock)})
		}
		return f.answer(int64(last))
	case f.l.Release(backend.Claim{}).Script:
		f.sent = append(f.sent, "release")
		if fields := strings.Fields(f.value); len(fields) > 2 && fields[3] == r.Args[0] {
			f.value = "h2 " + fields[1]
			return f.answer(int64(1))
		}
		return f.answer(int64(3))
	case script.Mark:
		return "", 0, nil
	}
	return f.answer([]any{}) // the probe
}

func (f *fake) Set(_ context.Context, key string, args ...string) (bool, error) {
	if f.err != "" {
		return false, errors.New(f.err)
	}
	if key == f.l.ProbeKey() {
		return false, nil
	}
	f.sent, f.args = append(f.sent, "SET"), args
	wrote := args[1] != "IFEQ" || f.value == args[2]
	if wrote {
		f.value = args[0]
	}
	if f.lose {
		f.lose = false
		return false, errLostReply
	}
	return wrote, nil
}

func (f *fake) Info(context.Context, string) ([]string, error) {
	return []string{"maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"}, nil
}
func (f *fake) Check(context.Context) error       { return nil }
func (f *fake) Messages(context.Context) Messages { return nil }
func (f *fake) Explain(err error) (failure Failure) {
	if !errors.Is(err, errLostReply) {
		failure.Reply = err.Error()
	}
	return failure
}

// native runs test in a bubble, on a store whose client holds the key "k" for the first time.
func nativeTest(t *testing.T, cfg Config, test func(*testing.T, *Store, *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(&cfg, "redis")
		if err != nil {
			t.Fatal(err)
		}
		f := &fake{l: s.Layout, clock: func() uint64 { return uint64(time.Now().UnixMicro()) }}
		s.Use(f)
		s.Counts(&f.dials)
		test(t, s, f)
	})
}

func fresh() backend.Claim {
	return backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Minute, NoneInFlight: true}
}

// pair takes and releases the key, and returns what was sent.
func (f *fake) pair(t *testing.T, s *Store, c backend.Claim) (sent string, g backend.Grant) {
	t.Helper()
	from := len(f.sent)
	g, err := s.TryAcquire(t.Context(), c)
	if err == nil {
		time.Sleep(time.Millisecond)
		_, err = s.Release(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(f.sent[from:], " "), g
}

// A key that this client left free is taken and freed by one SET each. Tokens rise with the clock.
//
// covers: K1
func TestNativePair(t *testing.T) {
	nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
		last := uint64(0)
		for i := range 20 {
			c := fresh()
			c.Reserve = 1 + i%3
			sent, g := f.pair(t, s, c)
			if want := "SET SET"; i > 0 && sent != want || i == 0 && sent != "acquire SET" {
				t.Fatalf("pair %d: %s", i, sent)
			}
			if now := f.clock(); g.Token <= last ||
				i > 10 && (g.Token > now || g.Token < now-20_000) || g.Reserved != c.Reserve {
				t.Fatalf("pair %d: %+v after %d, at %d", i, g, last, now)
			}
			last = g.Token + uint64(g.Reserved) - 1
			if f.value != script.Free(last) {
				t.Fatalf("pair %d leaves %q, want the last token, %d", i, f.value, last)
			}
		}
	})
}

// What was changed since is for the script to say: nothing of another is overwritten, and a mark is
// heard.
//
// covers: I1, W1
func TestNativeAfterOthers(t *testing.T) {
	nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
		f.pair(t, s, fresh())
		f.value = script.Held(f.clock()+5, "15000 another 1 ")
		was := f.value
		if _, err := s.TryAcquire(t.Context(), fresh()); !errors.Is(err, backend.ErrHeld) ||
			f.value != was {
			t.Errorf("TryAcquire of a key that another holds: %v, and the key is %q, was %q", err,
				f.value, was)
		}
		f.value = script.Free(f.clock())
		c := fresh()
		if _, err := s.TryAcquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		s.native.known[s.Layout.Key("k")] = func(k known) known {
			k.wait = 0
			return k
		}(s.native.known[s.Layout.Key("k")])
		f.value += " " // by one who watches
		f.sent = nil
		if _, err := s.Release(t.Context(), c); err != nil ||
			!slices.Equal(f.sent, []string{"SET", "release"}) {
			t.Errorf("Release of a hold that is marked: %v, by %q; want the script, "+
				"which publishes", err, f.sent)
		}
	})
}

// A command without an answer is not sent again: what the key holds is not known.
//
// covers: A3, A4
func TestNativeOnce(t *testing.T) {
	nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
		f.pair(t, s, fresh())
		c := fresh()
		f.sent, f.lose = nil, true
		if _, err := s.TryAcquire(t.Context(), c); backend.AnswerOf(err) != backend.Unknown {
			t.Fatalf("without an answer: %v", err)
		}
		if g, err := s.TryAcquire(t.Context(), c); err != nil || g.Token == 0 {
			t.Fatalf("the repeated attempt: %+v, %v", g, err)
		}
		f.lose = true
		for _, want := range []backend.Answer{backend.Unknown, backend.No} {
			if _, err := s.Release(t.Context(), c); backend.AnswerOf(err) != want {
				t.Fatalf("Release: %v", err)
			}
			if want == backend.Unknown && f.sent[len(f.sent)-1] != "release" {
				t.Errorf("a hold that was not granted by the short way is released by %s",
					f.sent[len(f.sent)-1])
			}
		}
		d := fresh()
		f.pair(t, s, fresh())
		if _, err := s.TryAcquire(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		f.sent, f.lose = nil, true
		if _, err := s.Release(t.Context(), d); backend.AnswerOf(err) != backend.Unknown {
			t.Fatalf("without an answer: %v", err)
		}
		if _, err := s.Release(t.Context(), d); !errors.Is(err, backend.ErrLost) ||
			!slices.Equal(f.sent, []string{"SET", "release"}) {
			t.Errorf("the repeated release: %v, by %q", err, f.sent)
		}
	})
}

// The estimate of the clock is some seconds old at most.
//
// covers: K1, K2
func TestNativeClock(t *testing.T) {
	nativeTest(t, Config{Retention: time.Hour}, func(t *testing.T, s *Store, f *fake) {
		f.pair(t, s, fresh())
		time.Sleep(maxAge - 10*time.Millisecond)
		if sent, g := f.pair(t, s, fresh()); sent != "SET SET" || g.Token+100_000 < f.clock() {
			t.Errorf("just before the estimate is old: %s, %+v at %d", sent, g, f.clock())
		}
		time.Sleep(20 * time.Millisecond)
		if sent, g := f.pair(t, s, fresh()); sent != "acquire SET" || g.Token+10_000 < f.clock() {
			t.Errorf("when the estimate is old: %s, %+v at %d", sent, g, f.clock())
		}
		if sent, _ := f.pair(t, s, fresh()); sent != "SET SET" {
			t.Errorf("after a script has told the time: %s", sent)
		}
		f.value = "" // the key is gone, and its time was told: the script
		time.Sleep(time.Second)
		if sent, _ := f.pair(t, s, fresh()); !strings.HasPrefix(sent, "SET acquire") {
			t.Errorf("a key that is gone: %s", sent)
		}
	})
}

// A minimum token is heeded, up to a quarter of the TTL ahead of the server's clock, and does not
// count as the clock.
//
// covers: K1, K2
func TestNativeMinimum(t *testing.T) {
	nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
		last := uint64(0)
		for i := range 20 {
			c := fresh()
			c.MinToken = f.clock() + 100_000
			sent, g := f.pair(t, s, c)
			if want := "SET SET"; i > 0 && sent != want || i == 0 && sent != "acquire SET" {
				t.Fatalf("pair %d: %s", i, sent)
			}
			if g.Token != c.MinToken || g.Token <= last {
				t.Fatalf("pair %d: token %d after %d, want the minimum, %d", i, g.Token, last,
					c.MinToken)
			}
			last = g.Token
		}
		c := fresh()
		c.MinToken, c.TTL = f.clock()+uint64((11*time.Second).Microseconds()), 40*time.Second
		sent, g := f.pair(t, s, c)
		if limit := f.clock() + uint64((10 * time.Second).Microseconds()); sent != "acquire SET" ||
			g.Token > limit || g.Token < limit-10_000 {
			t.Errorf("%s: token %d of a minimum further ahead, want the script to cut it to %d",
				sent, g.Token, limit)
		}
		if sent, after := f.pair(t, s, fresh()); sent != "acquire SET" || after.Token != g.Token+1 {
			t.Errorf("%s: token %d, far ahead of the clock, after %d; want it from the script",
				sent, after.Token, g.Token)
		}
	})
}

// A counter that is ahead of the clock is kept until the clock has passed it by the retention,
// whatever the TTL of the release; and so is one that is far behind, as its hold was long.
//
// covers: K1
func TestNativeKeeps(t *testing.T) {
	nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
		f.pair(t, s, fresh())
		for _, ttl := range []time.Duration{0, time.Hour, time.Second} {
			c := fresh()
			c.TTL = time.Hour
			if ttl != 0 {
				c.MinToken = f.clock() + uint64((10 * time.Minute).Microseconds())
			}
			g, err := s.TryAcquire(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if f.sent, c.TTL = nil, ttl; ttl == 0 {
				c.TTL = time.Second
				time.Sleep(time.Hour)
			}
			counter := max(g.Token, f.clock())
			if _, err := s.Release(t.Context(), c); err != nil ||
				!slices.Equal(f.sent, []string{"SET"}) {
				t.Fatalf("release with a TTL of %v: %v by %q", ttl, err, f.sent)
			}
			at, err := strconv.ParseUint(f.args[4], 10, 64)
			after := time.Duration(at*1000-counter) * time.Microsecond
			if keep := s.Layout.Keep(c); err != nil || f.args[3] != "PXAT" || after < keep ||
				after > keep+time.Minute {
				t.Errorf("release with a TTL of %v: %q, which is %v after the counter, want %v",
					ttl, f.args, after, keep)
			}
		}
	})
}

// A key that others use, too, is seldom guessed at.
func TestNativeMisses(t *testing.T) {
	nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
		n := 0
		for range 300 {
			if sent, _ := f.pair(t, s, fresh()); strings.HasPrefix(sent, "SET acquire") {
				n++
			}
			f.value = script.Free(f.clock() + 1) // another was here
		}
		if n < 3 || n > 12 {
			t.Errorf("%d of 300 pairs took a round trip more", n)
		}
		for range 70 {
			f.pair(t, s, fresh())
		}
		if sent, _ := f.pair(t, s, fresh()); sent != "SET SET" {
			t.Errorf("when the others have gone: %s", sent)
		}
	})
}

// Whatever is not a plain exclusive claim goes by scripts, and so does all where the rules are
// more than a compare.
func TestNativeIsForPlainLocks(t *testing.T) {
	for name, change := range map[string]func(*backend.Claim){
		"shared": func(c *backend.Claim) { c.Mode = backend.Shared },
		"permit": func(c *backend.Claim) { c.Mode, c.Limit = backend.Permit, 2 },
		"re-entrant": func(c *backend.Claim) {
			c.Reentrant, c.Hold = true, backend.NewOwner()
		},
		"state":            func(c *backend.Claim) { c.Load = true },
		"heeds a mark":     func(c *backend.Claim) { c.NotBefore = time.Hour },
		"may be in flight": func(c *backend.Claim) { c.NoneInFlight = false },
	} {
		nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
			f.pair(t, s, fresh())
			c := fresh()
			change(&c)
			want := "acquire release"
			if !c.NoneInFlight {
				want = "SET release"
			}
			if sent, _ := f.pair(t, s, c); sent != want {
				t.Errorf("%s: %s", name, sent)
			}
		})
	}
	for name, leave := range map[string]func(*backend.Claim){
		"mark": func(c *backend.Claim) {
			c.NotBefore = time.Hour
		}, "value": func(c *backend.Claim) { c.Save = []byte("v") },
	} {
		nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
			f.pair(t, s, fresh())
			c := fresh()
			_, err := s.TryAcquire(t.Context(), c)
			f.sent = nil
			leave(&c)
			if err = errors.Join(err, storetest.Release(t.Context(), s, c)); err != nil ||
				!slices.Equal(f.sent, []string{"release"}) {
				t.Errorf("a release that leaves a %s: %v, by %q", name, err, f.sent)
			}
		})
	}
	for name, cfg := range map[string]Config{
		"guard": {MaxTTL: time.Hour}, "dialect": {Dialect: DialectString},
		"replicas": {Replicas: 1},
	} {
		nativeTest(t, cfg, func(t *testing.T, s *Store, _ *fake) {
			if err := s.detect(t.Context()); err != nil || s.native.on.Load() {
				t.Errorf("%s: %v, native %v", name, err, s.native.on.Load())
			}
		})
	}
	nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
		f.pair(t, s, fresh())
		f.err = "ERR syntax error" // another server by now
		if sent, _ := f.pair(t, s, fresh()); sent != "acquire release" {
			t.Errorf("at a server without IFEQ: %s", sent)
		}
		f.err = ""
		if sent, _ := f.pair(t, s, fresh()); sent != "acquire release" {
			t.Errorf("after an error: %s", sent)
		}
	})
}

// An answer that comes late does not replace what was known later.
func TestNativeLateAnswer(t *testing.T) {
	nativeTest(t, Config{}, func(t *testing.T, s *Store, f *fake) {
		name := s.Layout.Key("k")
		lost := known{last: f.clock() + 1_000_000_000, tail: "15000 gone 1 ", id: "gone"}
		s.native.note(name, lost) // of a hold that was never released, by a server that forgot it
		f.pair(t, s, fresh())
		was := s.native.known[name]
		for i := range 3 {
			f.pair(t, s, fresh())
			s.native.note(name, was) // of an earlier release
			s.native.note(name, was.missed())
			if sent, _ := f.pair(t, s, fresh()); sent != "SET SET" {
				t.Errorf("pair %d after a late answer: %s", i, sent)
			}
		}
	})
}

// What is remembered is bounded.
func TestNativeForgets(t *testing.T) {
	nativeTest(t, Config{}, func(t *testing.T, s *Store, _ *fake) {
		for i := range 2 * maxKnown {
			s.native.note(fmt.Sprint(i), known{last: 1})
		}
		if n := len(s.native.known); n > maxKnown {
			t.Errorf("%d keys", n)
		}
	})
}

// An unreplicated is a server whose replicas have nothing yet.
type unreplicated struct{ fake }

func (f *unreplicated) Run(ctx context.Context, r Request) (any, int, error) {
	if r.Script == f.l.Renew(backend.Claim{}).Script ||
		r.Script == f.l.Release(backend.Claim{}).Script {
		return int64(1), 0, nil
	}
	if r.Script == f.l.TryAcquireAll(nil).Script {
		return []any{int64(1), int64(7), int64(9)}, 0, nil
	}
	return f.fake.Run(ctx, r)
}

// Several keys are in one request only where all are known to be on one server: a client of another
// kind may send it by its first key, to a server that has not the others.
//
// covers: B1
func TestManyKeysAreOnOneServer(t *testing.T) {
	claims := []backend.Claim{fresh(), fresh()}
	for name, test := range map[string]struct {
		cfg  Config
		know func(*Store) error
		many bool
	}{
		"one server": {Config{}, func(s *Store) error { s.OnOneServer(); return nil }, true},
		"not known":  {Config{}, func(*Store) error { return nil }, false},
		"a cluster":  {Config{}, (*Store).OnCluster, false},
		"dialect": {Config{Dialect: DialectString}, func(s *Store) error {
			s.OnOneServer()
			return nil
		}, false},
	} {
		s, err := New(&test.cfg, "redis")
		if err == nil {
			err = test.know(s)
		}
		if err != nil {
			t.Fatal(err)
		}
		f := &unreplicated{fake{l: s.Layout, clock: func() uint64 {
			return uint64(time.Now().UnixMicro())
		}}}
		s.Use(f)
		s.checked.Store(true)
		_, errAcquire := s.TryAcquireAll(t.Context(), claims)
		_, errNone := s.TryAcquireAll(t.Context(), nil)
		_, errRelease := s.TryReleaseAll(t.Context(), claims)
		for what, err := range map[string]error{
			"TryAcquireAll": errAcquire, "of none": errNone,
			"TryReleaseAll": errRelease,
		} {
			if errors.Is(err, errors.ErrUnsupported) == test.many {
				t.Errorf("%s: %s = %v", name, what, err)
			}
		}
	}
}

// A server of several that evicts has many keys refused, as it has one, also in the first request
// of all.
//
// covers: R5
func TestManyKeysOfAnUnfitServer(t *testing.T) {
	s, err := New(&Config{}, "redis")
	if err != nil {
		t.Fatal(err)
	}
	s.OnOneServer()
	f := &evicting{fake{l: s.Layout}}
	s.Use(f)
	if _, err = s.TryAcquireAll(t.Context(), []backend.Claim{fresh(), fresh()}); !errors.Is(err,
		backend.ErrUnsafe) || len(f.sent) > 0 {
		t.Errorf("TryAcquireAll = %v, and %q was sent; want ErrUnsafe", err, f.sent)
	}
}

// evicting is some servers of which one evicts keys, the last but one.
type evicting struct{ fake }

func (f *evicting) Info(context.Context, string) ([]string, error) {
	const good = "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
	return []string{good, "maxmemory:1000000\r\nmaxmemory_policy:allkeys-lru\r\n", good}, nil
}

// With replicas=1 no yes that a failover may undo is a yes: of a grant, of a renewal, and of a
// state that is saved. A release that saves nothing needs none.
func TestReplicasAreNeeded(t *testing.T) {
	s, err := New(&Config{Replicas: 1}, "redis")
	if err != nil {
		t.Fatal(err)
	}
	s.OnOneServer()
	f := &unreplicated{fake{l: s.Layout, clock: func() uint64 {
		return uint64(time.Now().UnixMicro())
	}}}
	s.Use(f)
	c := fresh()
	_, err = s.TryAcquire(t.Context(), c)
	saves := c
	saves.Save = []byte("state")
	_, errAll := s.TryAcquireAll(t.Context(), []backend.Claim{fresh(), fresh()})
	for what, err := range map[string]error{
		"TryAcquire": err, "TryAcquireAll": errAll, "Renew": s.Renew(t.Context(), c),
		"a save": storetest.Release(t.Context(), s, saves),
	} {
		if backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%s without a replica = %v, want that nobody knows", what, err)
		}
	}
	if _, err := s.Release(t.Context(), c); err != nil {
		t.Errorf("Release = %v", err)
	}
}
