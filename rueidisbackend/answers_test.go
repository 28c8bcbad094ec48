package rueidisbackend

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// In a failover rueidis closes the connection to the primary before, with requests in flight on it.
// That is no word of the server, and the client is not closed: what was sent may have been
// executed.
//
// covers: A2
func TestGivenUpConnectionIsNoAnswer(t *testing.T) {
	srv := testserver.SharedRedis(t)
	p := testserver.NewProxy(t, srv.Addr())
	b := opened(t, "rueidis://"+p.Addr()+"?request_timeout=1m")
	acquired(t, b, claim(key(t))) // the server knows the script
	c := claim(key(t))
	name := b.store.Layout.Key(c.Key)
	p.Set(testserver.Fault{Mode: testserver.HoldReply, Match: testserver.Containing(name)})
	answer := make(chan error, 1)
	go func() {
		_, err := b.TryAcquire(t.Context(), c)
		answer <- err
	}()
	p.Await(func(n testserver.Counts) bool { return n.Held > 0 })
	for _, node := range b.client.Nodes() {
		node.Close() // gives the server a second
	}
	err := <-answer
	p.Pass()
	if backend.AnswerOf(err) != backend.Unknown || errors.Is(err, backend.ErrClosed) {
		t.Errorf("an attempt without an answer: %v, want one that may have been executed", err)
	}
	if n := srv.MustDo("EXISTS", name); n != "1" {
		t.Errorf("%s locks, want the one that was granted", n)
	}
}

// A server that may be a promoted replica is closed for as long as the old primary may go on
// granting, too.
//
// covers: R1
func TestReplicaLagIsInTheGuard(t *testing.T) {
	const longest, lag = time.Minute, time.Hour
	url := "rueidis://" + testserver.Redis(t).Addr()
	b := opened(t, url+"?max_ttl="+longest.String()+"&replica_lag="+lag.String())
	_, err := b.TryAcquire(t.Context(), claim(key(t)))
	var q *backend.QuarantineError
	if !errors.As(err, &q) || q.RetryAfter <= lag {
		t.Fatalf("a new server: %v, want it closed for longer than %v", err, lag)
	}
}

// A holder that vanished blocks a client with held_answers until its lease is over, and not for as
// long as the server keeps the key's token: nobody writes the key, so the server says nothing.
//
// covers: R18
func TestHeldAnswersEndWithTheLease(t *testing.T) {
	url := "rueidis://" + testserver.SharedRedis(t).Addr() + "?retention=1h"
	b, other := opened(t, url+"&held_answers=true"), opened(t, url)
	vanished := claim(key(t))
	vanished.TTL = 300 * time.Millisecond
	g := acquired(t, other, vanished)
	eventually(t, "acquire", func() error {
		next, err := b.TryAcquire(t.Context(), claim(vanished.Key))
		var held *backend.HeldError
		if errors.As(err, &held) && held.RetryAfter <= 0 {
			t.Fatalf("refused, though the lease ended %v ago: %v", -held.RetryAfter, err)
		}
		if err == nil && next.Token <= g.Token {
			t.Errorf("granted with token %d after %d", next.Token, g.Token)
		}
		return err
	})
}

// What is known of a holder answers who does not wait. One that is to wait gets its place.
//
// covers: R18, W5
func TestHeldAnswersGiveNoPlace(t *testing.T) {
	url := "rueidis://" + testserver.SharedRedis(t).Addr()
	b, other := opened(t, url+"?held_answers=true"), opened(t, url)
	holder := claim(key(t))
	acquired(t, other, holder)
	for range 2 {
		_, err := b.TryAcquire(t.Context(), claim(holder.Key))
		want(t, "without a place", err, backend.ErrHeld)
	}
	if known, _ := b.held.look(b.store.Layout.Key(holder.Key)); !known {
		t.Fatal("nothing is known of the holder: this shows nothing")
	}
	waits := claim(holder.Key)
	waits.Queue, waits.WaiterTTL = true, waits.TTL
	var held *backend.HeldError
	if _, err := b.TryAcquire(t.Context(), waits); !errors.As(err, &held) || held.Position != 1 {
		t.Errorf("whoever waits: %v, want the first place", err)
	}
}

// stalled is a transport on which a caller gets the answer to a script when goOn is closed, if
// answered is set; then it says so.
type stalled struct {
	transport
	answered atomic.Pointer[chan struct{}]
	goOn     chan struct{}
}

func (s *stalled) Run(ctx context.Context, r store.Request) (any, int, error) {
	reply, n, err := s.transport.Run(ctx, r)
	if answered := s.answered.Swap(nil); answered != nil {
		close(*answered)
		<-s.goOn
	}
	return reply, n, err
}

// A goroutine that was refused by a hold of the same process, and deals with that when the hold was
// released, keeps nobody from the key, while the server's message of the release is on its way.
func TestHeldAnswersOfAHoldThatIsOver(t *testing.T) {
	b := opened(t, "rueidis://"+testserver.SharedRedis(t).Addr()+
		"?held_answers=true&request_timeout=1m")
	s := &stalled{transport: transport{b}, goOn: make(chan struct{})}
	b.store.Use(s)
	mine := claim(key(t))
	mine.NoneInFlight = true
	acquired(t, b, mine)
	watched(t.Context(), t, b, claim(mine.Key)) // and who holds is in rueidis' cache
	off := b.client.B().Arbitrary("CLIENT", "TRACKING", "OFF").Build()
	want(t, "messages that do not come", b.client.Do(t.Context(), off).Error(), nil)

	answered, refusal := make(chan struct{}), make(chan error, 1)
	s.answered.Store(&answered)
	go func() {
		_, err := b.TryAcquire(t.Context(), claim(mine.Key))
		refusal <- err
	}()
	<-answered
	want(t, "release", storetest.Release(t.Context(), b, mine), nil)
	close(s.goOn)
	want(t, "a refusal that was asked for before", <-refusal, backend.ErrHeld)
	acquired(t, b, claim(mine.Key)) // at once
}
