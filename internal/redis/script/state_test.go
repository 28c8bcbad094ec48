package script

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// try runs a request, and returns the reply or the error.
func (r rig) try(q Request) any {
	r.t.Helper()
	reply, err := r.srv.Do(words(q)...)
	if err != nil {
		return err
	}
	return reply
}

func (r rig) loading(owner string) backend.Claim {
	return backend.Claim{Key: r.key, Owner: owner, TTL: minute, Load: true, NoneInFlight: true}
}

func (r rig) take(c backend.Claim) (backend.Grant, error) {
	r.t.Helper()
	return DecodeAcquire(r.try(r.l.Acquire(c)), c)
}

// A state is a key of its own, without an expiry, which no end of a hold touches; and which holds
// are written as always beside it.
func TestStateOutlivesAll(t *testing.T) {
	r := newRig(t)
	c := r.loading("a")
	if g, err := r.take(c); err != nil || g.State != nil {
		t.Fatalf("%+v, %v", g, err)
	}
	c.Save = []byte("one\n+\x00")
	if _, err := DecodeRelease(r.try(r.l.Release(c))); err != nil {
		t.Fatal(err)
	}
	if got := r.srv.MustDo("PTTL", r.l.StateKey(r.key)); got != "-1" {
		t.Errorf("the state ends in %s ms", got)
	}
	if got := r.srv.MustDo("TYPE", r.l.Key(r.key)); got != "string" {
		t.Errorf("a free lock beside a state is a %s", got)
	}
	r.srv.MustDo("DEL", r.l.Key(r.key)) // as after the retention
	if g, err := r.take(r.loading("b")); err != nil || string(g.State) != "one\n+\x00" {
		t.Errorf("%q, %v", g.State, err)
	}
}

// Without memory a release that saves does nothing at all, and is repeated; one that saves nothing
// frees. What would be kept of half of it is a value without its lock, or a lock without its value.
func TestStateOutOfMemory(t *testing.T) {
	for name, leave := range map[string]func(*backend.Claim){
		"state": func(c *backend.Claim) { c.Save = []byte("x") },
		"mark":  func(c *backend.Claim) { c.NotBefore = minute },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := r.loading("a")
			if _, err := r.take(c); err != nil {
				t.Fatal(err)
			}
			leaving := c
			leave(&leaving)
			before := r.srv.MustDo("GET", r.l.Key(r.key))
			r.srv.MustDo("CONFIG", "SET", "maxmemory", "1")
			defer r.srv.MustDo("CONFIG", "SET", "maxmemory", "0")
			if err, ok := r.try(r.l.Release(leaving)).(error); !ok ||
				!errors.Is(ServerError(err.Error()), backend.ErrUnavailable) {
				t.Errorf("a release that leaves something = %v", err)
			}
			if after := r.srv.MustDo("GET", r.l.Key(r.key)); after != before {
				t.Errorf("the lock was %q and is %q", before, after)
			}
			if _, err := DecodeRelease(r.try(r.l.Release(c))); err != nil {
				t.Errorf("a release that leaves nothing = %v", err)
			}
			r.srv.MustDo("CONFIG", "SET", "maxmemory", "0")
			if _, err := DecodeRelease(r.try(r.l.Release(leaving))); !errors.Is(err,
				backend.ErrLost) {
				t.Errorf("a release that comes too late = %v", err)
			}
			if g, err := r.take(r.loading("b")); err != nil || g.State != nil {
				t.Errorf("%+v, %v: what was refused was left", g, err)
			}
		})
	}
}

// A state that is none of ours refuses who loads it, and grants him nothing; who loads nothing is
// not concerned. One who waits is told to ask, and is refused then.
func TestStateThatIsNone(t *testing.T) {
	r := newRig(t)
	r.srv.MustDo("HSET", r.l.StateKey(r.key), "a", "b")
	reply := r.try(r.l.Acquire(r.loading("a")))
	if err, ok := reply.(error); !ok || !errors.Is(ServerError(err.Error()), backend.ErrForeign) {
		t.Errorf("a claim that loads it: %v", reply)
	}
	if exists := r.srv.MustDo("EXISTS", r.l.Key(r.key)); exists != "0" {
		t.Error("the lock was written to")
	}
	holder := r.loading("holder")
	holder.Load = false
	if _, err := r.take(holder); err != nil {
		t.Fatal(err)
	}
	waiter := r.loading("waiter")
	waiter.Queue, waiter.WaiterTTL = true, minute
	if _, err := DecodeAcquire(r.try(r.l.For("me").Acquire(waiter)), waiter); !errors.Is(err,
		backend.ErrHeld) {
		t.Fatal(err)
	}
	if _, err := DecodeRelease(r.try(r.l.Release(holder))); err != nil {
		t.Errorf("a release that hands over: %v", err)
	}
	if got := r.state().Holders; len(got) != 1 || got[0].Owner != "waiter" {
		t.Errorf("holders %+v", got)
	}
}

// What a message says of a state is all of it, none, or that it is to be asked for.
func TestDecodeHandedState(t *testing.T) {
	for line, want := range map[string]*backend.Grant{
		"\n+a\nb": {State: []byte("a\nb")}, "\n+": {State: []byte{}}, "\n-": {}, "": {}, "\n?": nil,
		"\n": nil,
	} {
		topic, w, ok := DecodeHanded("17 3 1500 id holdfast:{k}" + line)
		if !ok || topic != "id holdfast:{k}" || w.Granted != (want != nil) {
			t.Errorf("%q: %q, %+v, %v", line, topic, w, ok)
			continue
		}
		if want != nil && (!slices.Equal(w.Grant.State, want.State) ||
			(w.Grant.State == nil) != (want.State == nil)) {
			t.Errorf("%q: state %q", line, w.Grant.State)
		}
	}
}

// The mark of a version that knows no run is heeded for as long as it is there; and this version
// leaves the same for it, for as long as it would have been.
func TestRunAmongVersions(t *testing.T) {
	r := newRig(t)
	job := func(owner string, every time.Duration) backend.Claim {
		return backend.Claim{
			Key: r.key, Owner: owner, TTL: minute, NotBefore: every,
			NoneInFlight: true,
		}
	}
	run := func(every, ran time.Duration) {
		t.Helper()
		c := job("a", every)
		if _, err := r.take(c); err != nil {
			t.Fatal(err)
		}
		c.Ran = ran
		if _, err := DecodeRelease(r.try(r.l.Release(c))); err != nil {
			t.Fatal(err)
		}
	}
	early, ran := r.l.Key(r.key)+":early", r.l.Key(r.key)+":ran"
	within := func(key string, want time.Duration) {
		t.Helper()
		ms, err := strconv.ParseInt(r.srv.MustDo("PTTL", key), 10, 64)
		if left := time.Duration(ms) * time.Millisecond; err != nil || left > want ||
			left < want-minute {
			t.Errorf("%s is there for %v, %v; want %v", key, left, err, want)
		}
	}
	run(time.Hour, 10*time.Minute)
	within(early, 50*time.Minute)
	within(ran, 2*time.Hour)

	r.srv.MustDo("SET", early, "1", "PX", "1800000") // by a version before, which ran it once more
	var refused *backend.EarlyError
	for _, every := range []time.Duration{time.Second, 2 * time.Hour} {
		if _, err := r.take(job("b", every)); !errors.As(err, &refused) ||
			refused.RetryAfter > 30*time.Minute || refused.RetryAfter < 29*time.Minute {
			t.Errorf("a job of %v after a run of a version before: %v", every, err)
		}
	}
	r.srv.MustDo("DEL", early) // which is over
	run(time.Minute, 2*time.Minute)
	if n := r.srv.MustDo("EXISTS", early); n != "0" {
		t.Error("a run that took longer than its time keeps a version before from running it")
	}
	within(ran, 2*time.Minute)
	for _, damage := range []string{"x", "1 2 3", "-1 5"} {
		r.srv.MustDo("SET", ran, damage)
		if _, err := r.take(job("b", time.Second)); !errors.Is(err, backend.ErrForeign) {
			t.Errorf("a run that is stored as %q: %v", damage, err)
		}
	}
}

// What a holder saves is kept also where its release hands the key over.
func TestSavedAtAHandOver(t *testing.T) {
	for _, queue := range [][]string{{"b"}, {"b", "c"}} {
		r := newRig(t)
		c := r.loading("a")
		if _, err := r.take(c); err != nil {
			t.Fatal(err)
		}
		for i, owner := range queue {
			_ = r.refused(queued(owner), i+1)
		}
		c.Save = []byte("saved")
		if _, err := DecodeRelease(r.try(r.l.Release(c))); err != nil {
			t.Fatal(err)
		}
		if got, _ := r.srv.Do("GET", r.l.StateKey(r.key)); got != "saved" {
			t.Errorf("before %q: %v is kept of what was saved", queue, got)
		}
		if held := r.state().Holders; len(held) != 1 || held[0].Owner != queue[0] {
			t.Errorf("before %q: %+v hold", queue, held)
		}
	}
}
