package peers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.StopAfter(m).Run()) }

func newLocker(t testing.TB, addr string,
	change func(*rueidislock.LockerOption),
) rueidislock.Locker {
	t.Helper()
	o := rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true},
		KeyMajority:  1, NoLoopTracking: true, // as in its README
	}
	if change != nil {
		change(&o)
	}
	l, err := rueidislock.NewLocker(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func quick(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// The key is free all the time and the server answers fast again after a second. Its own clean-up
// of the attempts that took too long wakes nobody, so it waits for ever.
func TestLostWakeUpWithSlowReplies(t *testing.T) {
	p := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
	l := newLocker(t, p.Addr(), nil)
	defer l.Close()
	p.Set(testserver.Fault{Mode: testserver.DelayReply, Delay: 60 * time.Millisecond})
	time.AfterFunc(time.Second, p.Pass)
	start := time.Now()
	_, cancel, err := l.WithContext(quick(t, 5*time.Second), "slow-replies")
	if err == nil {
		cancel()
		t.Errorf("locked after %v: this library has no lost wake-up any more", time.Since(start))
	}
}

// The process' clock is behind the server's: in a synctest bubble it is the year 2000. Both hold.
func TestDoubleGrantUnderClockSkew(t *testing.T) {
	addr := testserver.SharedRedis(t).Addr()
	synctest.Test(t, func(t *testing.T) {
		a, b := newLocker(t, addr, nil), newLocker(t, addr, nil)
		defer a.Close()
		defer b.Close()
		ctx1, cancel1, err1 := a.TryWithContext(t.Context(), "skewed")
		ctx2, cancel2, err2 := b.TryWithContext(t.Context(), "skewed")
		if err1 != nil || err2 != nil || ctx1.Err() != nil || ctx2.Err() != nil {
			t.Errorf("%v, %v: this library no longer trusts the client's clock", err1, err2)
		}
		for _, cancel := range []context.CancelFunc{cancel1, cancel2} {
			if cancel != nil {
				cancel()
			}
		}
	})
}

// A key that is named like the prefix is read through the locker's client, and written by somebody:
// the process ends.
func TestPanicOnPrefixNamedKey(t *testing.T) {
	const env = "HOLDFAST_PANIC_AT"
	srv := testserver.SharedRedis(t)
	if addr := os.Getenv(env); addr != "" {
		l := newLocker(t, addr, nil)
		defer l.Close()
		c := l.Client()
		if err := c.Do(t.Context(), c.B().Get().Key("rueidislock").Build()).Error(); err != nil &&
			!rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
		other, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress:       []string{addr},
			ForceSingleClient: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err := other.Do(t.Context(),
			other.B().Set().Key("rueidislock").Value("1").Build()).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the process ends, or the defect is gone
		return
	}
	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanicOnPrefixNamedKey$")
	self.Env = append(os.Environ(), env+"="+srv.Addr())
	out, err := self.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "slice bounds out of range") {
		t.Errorf("%v: this library no longer ends the process\n%s", err, out)
	}
}

// The holder is cut off. Its context is still alive when another process has been granted the lock.
func TestLateLossAfterPartition(t *testing.T) {
	srv := testserver.SharedRedis(t)
	p := testserver.NewProxy(t, srv.Addr())
	short := func(o *rueidislock.LockerOption) { o.KeyValidity = 2 * time.Second }
	holder, other := newLocker(t, p.Addr(), short), newLocker(t, srv.Addr(),
		func(o *rueidislock.LockerOption) {
			short(o)
			o.NoLoopTracking = false
		})
	defer holder.Close()
	defer other.Close()
	late := 0
	for range 3 {
		held, cancel, err := holder.WithContext(t.Context(), "partition")
		if err != nil {
			t.Fatal(err)
		}
		p.Set(testserver.Fault{Mode: testserver.Hold})
		_, cancel2, err := other.WithContext(quick(t, 10*time.Second), "partition")
		if err != nil {
			t.Fatal(err)
		}
		if held.Err() == nil {
			late++
		}
		p.Pass()
		cancel()
		cancel2()
	}
	if late == 0 {
		t.Error("the holder knew each time: this library is no longer late")
	}
}

// The reply to an acquisition is lost. It is reported as held by others, and the key stays for its
// whole validity.
func TestLeakAfterLostReply(t *testing.T) {
	srv := testserver.SharedRedis(t)
	p := testserver.NewProxy(t, srv.Addr())
	l := newLocker(t, p.Addr(), nil)
	defer l.Close()
	// Loads the scripts.
	if _, cancel, err := l.TryWithContext(t.Context(), "lost-warm"); err != nil {
		t.Fatal(err)
	} else {
		cancel()
	}
	p.Set(testserver.Fault{
		Mode:  testserver.ExecuteThenCut,
		Match: testserver.Containing("lost-reply"), Next: 1,
	})
	_, cancel, err := l.TryWithContext(quick(t, 2*time.Second), "lost-reply")
	if err == nil {
		cancel()
		t.Fatal("locked: this library has learnt to ask again")
	}
	if !errors.Is(err, rueidislock.ErrNotLocked) {
		t.Errorf("%v", err)
	}
	time.Sleep(200 * time.Millisecond) // for a clean-up behind the caller's back
	if n := srv.MustDo("KEYS", "rueidislock*lost-reply*"); n == "[]" {
		t.Error("nothing is left: this library cleans up after a lost reply")
	}
}
