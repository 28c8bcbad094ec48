package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// servers are a fake with many keys, whose servers have clocks of their own. Keys expire by the
// clock of the server that has them.
type servers struct {
	fake

	ahead  map[string]time.Duration // the clock of the server that has the key
	keys   map[string]*expiring
	during func() // the next SET
	after  func() // the next acquire was executed, and before its reply
}

type expiring struct {
	value string
	at    time.Duration // on the server's clock, since 1970
}

func (f *servers) now(key string) time.Duration {
	return time.Duration(time.Now().UnixNano()) + f.ahead[key]
}

func (f *servers) get(key string) string {
	if k := f.keys[key]; k != nil && f.now(key) < k.at {
		return k.value
	}
	return ""
}

func (f *servers) put(key, value string, at time.Duration) { f.keys[key] = &expiring{value, at} }

func (f *servers) Set(ctx context.Context, key string, args ...string) (bool, error) {
	if key == f.l.ProbeKey() {
		return false, nil
	}
	f.sent = append(f.sent, "SET")
	if f.during != nil {
		f.during()
		f.during = nil
	}
	if f.get(key) != args[2] {
		return false, nil
	}
	ms, _ := strconv.ParseInt(args[4], 10, 64)
	at := time.Duration(ms) * time.Millisecond
	if args[3] == "PX" {
		at += f.now(key)
	}
	f.put(key, args[0], at)
	return true, nil
}

// Run is what the scripts do to a lock that nobody waits for.
func (f *servers) Run(ctx context.Context, r Request) (any, int, error) {
	acquire, release := r.Script == f.l.Acquire(backend.Claim{}).Script,
		r.Script == f.l.Release(backend.Claim{}).Script
	if !acquire && !release {
		return f.fake.Run(ctx, r)
	}
	key, now := r.Keys[0], f.now(r.Keys[0])
	clock := uint64(now.Microseconds())
	fields := strings.Fields(f.get(key)) // h2 counter keep id count
	counter, far := uint64(0), time.Duration(0)
	if len(fields) > 1 {
		counter, _ = strconv.ParseUint(fields[1], 10, 64)
	}
	if acquire {
		f.sent = append(f.sent, "acquire")
		mine, over := false, true
		if len(fields) > 2 {
			keep, _ := strconv.ParseInt(fields[2], 10, 64)
			mine, over = fields[3] == r.Args[0],
				f.keys[key].at-time.Duration(keep)*time.Millisecond <= now
		}
		if !mine && !over {
			return []any{int64(2), int64(1000), "", int64(0), int64(0)}, 0, nil
		}
		tail := strings.SplitN(r.Args[2], " ", 2) // keep, and the rest
		if !mine {
			counter = max(counter+1, clock)
		}
		if counter > clock+script.Near { // a counter that is ahead of the clock is kept for longer
			far = 2 * time.Duration(counter-clock) * time.Microsecond
		}
		keep, _ := strconv.ParseInt(tail[0], 10, 64)
		px, _ := strconv.ParseInt(r.Args[1], 10, 64)
		keep += far.Milliseconds()
		if f.after != nil {
			defer f.after()
			f.after = nil
		}
		f.put(key, script.Held(counter, strconv.FormatInt(keep, 10)+" "+tail[1]),
			now+far+time.Duration(px)*time.Millisecond)
		if far > 0 || mine {
			return []any{int64(1), int64(counter), int64(1)}, 0, nil
		}
		return int64(counter), 0, nil
	}
	f.sent = append(f.sent, "release")
	if len(fields) < 3 || fields[3] != r.Args[0] {
		return int64(3), 0, nil
	}
	if fields[2] != r.Args[1] && counter > clock {
		far = 2 * time.Duration(counter-clock) * time.Microsecond
	}
	keep, _ := strconv.ParseInt(r.Args[1], 10, 64)
	f.put(key, script.Free(counter), now+far+time.Duration(keep)*time.Millisecond)
	return int64(1), 0, nil
}

// clocksTest runs test in a bubble with a store on such servers.
func clocksTest(t *testing.T, test func(*testing.T, *Store, *servers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(&Config{}, "redis")
		if err != nil {
			t.Fatal(err)
		}
		f := &servers{
			fake: fake{l: s.Layout}, ahead: map[string]time.Duration{},
			keys: map[string]*expiring{},
		}
		s.Use(f)
		s.Counts(&f.dials)
		test(t, s, f)
	})
}

// A tokens checks that those of one key rise.
type tokens map[string]uint64

func (last tokens) acquired(t *testing.T, s *Store, key string) backend.Claim {
	t.Helper()
	c := fresh()
	c.Key, c.TTL = key, time.Second
	g, err := s.TryAcquire(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if g.Token <= last[key] {
		t.Errorf("the token of %s is %v less than the last", key,
			time.Duration(last[key]-g.Token)*time.Microsecond)
	}
	last[key] = g.Token
	return c
}

func (last tokens) pair(t *testing.T, s *Store, key string) {
	t.Helper()
	c := last.acquired(t, s, key)
	time.Sleep(time.Millisecond)
	if _, err := s.Release(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// The primaries of a cluster have clocks that differ by more than the retention: what one has told
// is not believed of another, so tokens rise also when a counter was dropped: after a release, and
// after a hold that was not released.
//
// covers: K1, K2
func TestNativeClocksOfPrimaries(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			clocksTest(t, func(t *testing.T, s *Store, f *servers) {
				if err := s.OnCluster(); err != nil {
					t.Fatal(err)
				}
				f.ahead[s.Layout.Key("fast")] = 20 * time.Second
				last := tokens{}
				for range 2 {
					last.pair(t, s, "slow")
					last.pair(t, s, "fast")
				}
				f.sent = nil
				last.pair(t, s, "fast")
				if crash {
					last.acquired(t, s, "slow")
				} else {
					last.pair(t, s, "slow")
				}
				if sent := strings.Join(f.sent, " "); !strings.HasPrefix(sent, "SET SET SET") {
					t.Errorf("%q was sent, want natives", sent)
				}
				time.Sleep(17 * time.Second)
				last.pair(t, s, "slow")
				last.pair(t, s, "fast")
			})
		})
	}
}

// After a failover to a server whose clock is behind by more than the retention nothing is
// estimated until that one has told its time: not for a hold that is released, nor for one that is
// not, nor when the connection is made only by the command that goes to it.
//
// covers: K1, K2
func TestNativeClockAfterFailover(t *testing.T) {
	for name, test := range map[string]struct{ late, crash bool }{
		"connected before, released":         {},
		"connected before, crashed":          {crash: true},
		"connected by the command, released": {late: true},
		"connected by the command, crashed":  {late: true, crash: true},
	} {
		t.Run(name, func(t *testing.T) {
			clocksTest(t, func(t *testing.T, s *Store, f *servers) {
				k, last := s.Layout.Key("k"), tokens{}
				f.ahead[k] = 20 * time.Second
				for range 2 {
					last.pair(t, s, "k")
				}
				failover := func() {
					f.ahead[k] = 0
					f.dials.Add(1)
				}
				if f.during = failover; !test.late {
					f.during()
					f.during = nil
				}
				if test.crash {
					last.acquired(t, s, "k")
				} else {
					last.pair(t, s, "k")
				}
				if !test.late && f.sent[4] != "acquire" {
					t.Errorf("%q was sent, and nobody knew the clock", f.sent)
				}
				if f.during != nil {
					t.Fatalf("no native command was sent: %q", f.sent)
				}
				time.Sleep(17 * time.Second)
				last.pair(t, s, "k")
			})
		})
	}
}

// A failover between the execution of a request and its reply: what the server before told of its
// clock is not believed of the one that follows, to which the client is connected already when it
// hears that.
//
// covers: K1, K2
func TestNativeClockOfAReplyThatIsLate(t *testing.T) {
	clocksTest(t, func(t *testing.T, s *Store, f *servers) {
		k, last := s.Layout.Key("k"), tokens{}
		f.ahead[k] = 20 * time.Second
		f.after = func() { f.ahead[k] = 0; f.dials.Add(1) }
		last.pair(t, s, "k")
		last.acquired(t, s, "k") // and is never released
		time.Sleep(17 * time.Second)
		last.pair(t, s, "k")
	})
}

// A hold that lasts over a failover is released by one command, and its counter is kept until the
// new server's clock has passed it.
//
// covers: K1, K2
func TestNativeHeldOverFailover(t *testing.T) {
	clocksTest(t, func(t *testing.T, s *Store, f *servers) {
		f.ahead[s.Layout.Key("k")] = 20 * time.Second
		last := tokens{}
		last.pair(t, s, "k")
		c := last.acquired(t, s, "k")
		f.during = func() { f.ahead[s.Layout.Key("k")] = 0; f.dials.Add(1) }
		if _, err := s.Release(t.Context(), c); err != nil || f.during != nil {
			t.Fatalf("release: %v, by %q", err, f.sent)
		}
		time.Sleep(17 * time.Second)
		last.pair(t, s, "k")
	})
}

// Where connections are not seen, as those of a program's own client, a request without an answer
// is what tells of a failover.
//
// covers: K1, K2
func TestNativeClockAfterLostReply(t *testing.T) {
	clocksTest(t, func(t *testing.T, s *Store, f *servers) {
		s.one = false
		k, last := s.Layout.Key("k"), tokens{}
		f.ahead[k] = 20 * time.Second
		for range 2 {
			last.pair(t, s, "k")
		}
		f.lose = true
		if _, err := s.Inspect(t.Context(), "k"); err == nil {
			t.Fatal("no reply was lost")
		}
		f.ahead[k] = 0
		last.acquired(t, s, "k") // and is never released
		time.Sleep(17 * time.Second)
		last.pair(t, s, "k")
	})
}
