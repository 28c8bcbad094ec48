package rueidisbackend

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// The defects of rueidislock. The tests of the same names in internal/bench/peers show that it has
// them.

// The key is free all the time, and the server answers slowly for a second.
//
// covers: W1
func TestLostWakeUpWithSlowReplies(t *testing.T) {
	for name, mode := range map[string]waiting.Mode{
		"in the queue": waiting.Handoff,
		"notified":     waiting.Notify,
	} {
		t.Run(name, func(t *testing.T) {
			p := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
			l := redistest.Quiet(t, opened(t, "rueidis://"+p.Addr()),
				locker.Config{Wait: waiting.Config{Mode: mode}})
			p.Set(testserver.Fault{Mode: testserver.DelayReply, Delay: 60 * time.Millisecond})
			time.AfterFunc(time.Second, p.Pass)
			g, err := l.Lock(quick(t, 5*time.Second), key(t))
			want(t, "lock", err, nil)
			want(t, "unlock", g.Unlock(), nil)
		})
	}
}

// The process' clock is behind the server's: in a synctest bubble it is the year 2000. No clock of
// a client reaches the store.
//
// covers: A13
func TestDoubleGrantUnderClockSkew(t *testing.T) {
	option := rueidis.ClientOption{
		InitAddress:       []string{testserver.SharedRedis(t).Addr()},
		ForceSingleClient: true,
	}
	name := key(t)
	synctest.Test(t, func(t *testing.T) {
		a, err := New(option, Config{})
		want(t, "new", err, nil)
		b, err := New(option, Config{})
		want(t, "new", err, nil)
		c := claim(name)
		acquired(t, a, c)
		_, err = b.TryAcquire(t.Context(), claim(name))
		want(t, "another", err, backend.ErrHeld)
		want(t, "renew", a.Renew(t.Context(), c), nil)
		want(t, "release", storetest.Release(t.Context(), a, c), nil)
		for _, b := range []backend.Backend{a, b} {
			want(t, "close", b.Close(), nil)
		}
	})
}

// What the server tells about is named like the prefix, or like nothing of ours.
func TestPanicOnPrefixNamedKey(t *testing.T) {
	srv := testserver.SharedRedis(t)
	b := opened(t, "rueidis://"+srv.Addr()+"?held_answers=true")
	for _, odd := range []string{
		"holdfast", "holdfast:", "holdfast:{", "holdfast:{}", "h", "{}",
		"holdfast:@",
	} {
		results := b.client.DoMulti(t.Context(), b.client.B().ClientCaching().Yes().Build(),
			b.client.B().Get().Key(odd).Build())
		if err := results[1].Error(); err != nil && !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
		srv.MustDo("SET", odd, "1")
		srv.MustDo("DEL", odd)
	}
	c := claim(key(t))
	acquired(t, b, c)
	wake := watched(t.Context(), t, b, claim(c.Key))
	want(t, "release", storetest.Release(t.Context(), b, c), nil)
	woken(t, wake) // the reader of the connection lives
}

// The holder is cut off, and knows before another is granted the lock.
//
// covers: B1, A6, B8
func TestLateLossAfterPartition(t *testing.T) { redistest.HolderCutOff(t, "rueidis") }

// The reply to an acquisition is lost. One's own lock is not reported as held by others, and
// nothing is left.
//
// covers: A2, A3, C4, B7
func TestLeakAfterLostReply(t *testing.T) { redistest.LostReplies(t, "rueidis") }
