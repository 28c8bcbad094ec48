package redistest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// LongQueue has a thousand claims wait for one key, and keep their places: first each by itself,
// as a thousand processes do, then all together by Heartbeat. What the holder's client asks does
// not grow with the heartbeats of the others: it looks at who holds every TTL/12 at most; and
// together a thousand places cost four requests.
//
// covers: W4, W17
func LongQueue(t *testing.T, scheme string) {
	const n, ttl = 1000, 6 * time.Second
	srv := testserver.Redis(t)
	// All ask at once, and the machine may be busy.
	url := scheme + "://" + srv.Addr() + "?request_timeout=1m"
	holder, waiters := Closing(t, url), Closing(t, url)
	c := storetest.Claim(storetest.Key(t))
	c.TTL = ttl
	storetest.Acquired(t, holder, c)
	began := time.Now()
	var wake <-chan backend.Wake
	if holder.Capabilities().Loss {
		var err error
		wake, err = holder.Watch(t.Context(), c)
		storetest.Want(t, "watch", err, nil)
	}
	claims := make([]backend.Claim, n)
	for i := range claims {
		claims[i] = storetest.Claim(c.Key)
		claims[i].Queue, claims[i].WaiterTTL = true, time.Minute
	}
	// It is the first.
	if _, err := waiters.TryAcquire(t.Context(), claims[0]); !errors.Is(err, backend.ErrHeld) {
		t.Errorf("the first waiter: %v", err)
	}
	before := calls(srv)
	rounds := 0
	for ; time.Since(began) < ttl/2; rounds++ {
		each(64, n, func(i int) {
			if _, err := waiters.TryAcquire(t.Context(), claims[i]); !errors.Is(err,
				backend.ErrHeld) {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		storetest.Want(t, "renew", holder.Renew(t.Context(), c), nil)
	}
	took, after := time.Since(began), calls(srv)
	looks := after["exec"] - before["exec"]
	t.Logf("%d heartbeats in %v: %d looks at who holds, %.0f scripts a second", n*rounds,
		took.Round(time.Millisecond),
		looks, float64(after["evalsha"]-before["evalsha"])/took.Seconds())
	// Two reads each; the pauses double until they are so long. On a busy machine others ask before
	// the first has its answer: twice as many are far from one for each heartbeat.
	if most := 4 * (int(took/(ttl/12)) + 12); looks > most {
		t.Errorf("%d looks in %v, want at most %d", looks, took, most)
	}
	select {
	case <-wake:
		t.Error("a hold that goes on was reported as lost")
	default:
	}
	together(t, srv, holder, waiters, c, claims)
}

// together keeps the places of all claims by Heartbeat.
func together(t *testing.T, srv *testserver.Server, holder, waiters backend.Backend,
	c backend.Claim, claims []backend.Claim,
) {
	t.Helper()
	before := calls(srv)
	for rest := claims; len(rest) > 0; {
		some := rest[:min(len(rest), backend.MaxHeartbeat)]
		rest = rest[len(some):]
		waiting, err := waiters.Heartbeat(t.Context(), some)
		storetest.Want(t, "heartbeat", err, nil)
		for i := range waiting {
			if !errors.Is(waiting[i], backend.ErrHeld) {
				t.Fatalf("one of %d does not wait any more", len(some))
			}
		}
	}
	if n := calls(srv)["evalsha"] - before["evalsha"]; n > (len(claims)-1)/backend.MaxHeartbeat+2 {
		t.Errorf("%d places took %d scripts", len(claims), n)
	}
	storetest.Want(t, "release", storetest.Release(t.Context(), holder, c), nil)
	waiting, err := waiters.Heartbeat(t.Context(), claims[:2])
	if err != nil || !errors.Is(waiting[0], backend.ErrLost) ||
		!errors.Is(waiting[1], backend.ErrHeld) {
		t.Errorf("after the release: %v, %v, want the first one to hold", waiting, err)
	}
	badHeartbeats(t, waiters, claims)
}

// badHeartbeats are refused.
func badHeartbeats(t *testing.T, b backend.Backend, claims []backend.Claim) {
	t.Helper()
	alone := claims[0]
	alone.Queue = false
	for why, bad := range map[string][]backend.Claim{
		"too many": claims[:backend.MaxHeartbeat+1],
		"no queue": {claims[1], alone},
		"no owner": {{Key: claims[0].Key, TTL: time.Minute, Queue: true, WaiterTTL: time.Second}},
	} {
		if _, err := b.Heartbeat(t.Context(), bad); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", why, err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Heartbeat(cancelled, claims[:1]); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

var commandCalls = regexp.MustCompile(`cmdstat_([a-z_|]+):calls=(\d+)`)

// calls is how often the server has executed each command.
func calls(srv *testserver.Server) map[string]int {
	counts := map[string]int{}
	for _, found := range commandCalls.FindAllStringSubmatch(srv.MustDo("INFO", "commandstats"),
		-1) {
		counts[found[1]], _ = strconv.Atoi(found[2])
	}
	return counts
}

// NoHeartbeat checks that the string dialect, which has no queue, says so.
func NoHeartbeat(t *testing.T, scheme string) {
	b := Closing(t, fmt.Sprint(scheme, "://", testserver.SharedRedis(t).Addr(),
		"?dialect=string&prefix=d:"))
	if _, err := b.Heartbeat(t.Context(), []backend.Claim{storetest.Claim("k")}); !errors.Is(err,
		errors.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
}

// ClusterHeartbeat keeps places in the queues of keys on all primaries, and List tells of them all.
// When one of these hangs, only its keys are without an answer. redisKey is how the backend names a
// key.
//
// covers: W2
func ClusterHeartbeat(t *testing.T, set *testserver.ClusterSet, b backend.Backend,
	redisKey func(string) string,
) {
	t.Helper()
	var claims []backend.Claim
	for i := range 30 { // some on each primary, and none by chance only
		held, waits := storetest.Claim(fmt.Sprint("beat-", i)),
			storetest.Claim(fmt.Sprint("beat-", i))
		waits.Queue, waits.WaiterTTL = true, time.Minute
		storetest.Acquired(t, b, held)
		if _, err := b.TryAcquire(t.Context(), waits); !errors.Is(err, backend.ErrHeld) {
			t.Fatalf("in the queue: %v", err)
		}
		claims = append(claims, waits)
	}
	listed := map[string]bool{}
	for l, err := range b.List(t.Context(), "beat-") {
		if err != nil || len(l.State.Holders) != 1 || len(l.State.Waiters) != 1 {
			t.Fatalf("listed is %+v, %v", l, err)
		}
		listed[l.Key] = true
	}
	if len(listed) != len(claims) {
		t.Errorf("%d of %d locks are listed", len(listed), len(claims))
	}
	hung, err := set.Owner(redisKey(claims[0].Key))
	storetest.Want(t, "owner", err, nil)
	ofHung := map[string]bool{}
	for _, c := range claims {
		owner, err := set.Owner(redisKey(c.Key))
		storetest.Want(t, "owner", err, nil)
		ofHung[c.Key] = owner == hung
	}
	check := func(hangs bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if hangs {
			defer time.AfterFunc(time.Second, cancel).Stop()
		}
		answers, err := b.Heartbeat(ctx, claims)
		storetest.Want(t, "heartbeat", err, nil)
		for i, answer := range answers {
			silent := hangs && ofHung[claims[i].Key]
			if silent && backend.AnswerOf(answer) != backend.Unknown ||
				!silent && !errors.Is(answer, backend.ErrHeld) {
				t.Errorf("heartbeat for %q, whose primary hangs: %v, = %v", claims[i].Key, silent,
					answer)
			}
		}
	}
	check(false)
	hung.Stop()
	check(true)
	hung.Cont()
}
