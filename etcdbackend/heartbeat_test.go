package etcdbackend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// enqueued has a claim wait.
func enqueued(t *testing.T, b *Backend, c backend.Claim, position int) {
	t.Helper()
	_, err := b.TryAcquire(t.Context(), c)
	var held *backend.HeldError
	if !errors.As(err, &held) || held.Position != position {
		t.Fatalf("TryAcquire in the queue = %v, want position %d", err, position)
	}
}

// One heartbeat keeps all waiters of a key: with one read, and with one keepalive for all of them
// if any.
//
// covers: W8, W9
func TestHeartbeatKeepsAll(t *testing.T) {
	t.Parallel()
	const waiters, waiterTTL = 100, 4 * time.Second
	srv := testserver.Etcd(t)
	var reads, others, keepalives, leases atomic.Int64
	var kept sync.Map // leases
	b, _ := tap{before: func(req any) {
		switch req := req.(type) {
		case *etcdserverpb.LeaseKeepAliveRequest:
			if _, before := kept.LoadOrStore(req.ID, true); !before {
				leases.Add(1)
			}
			keepalives.Add(1)
		case *etcdserverpb.TxnRequest:
			if len(req.Compare) > 0 {
				others.Add(1)
			} else {
				reads.Add(1)
			}
		default:
			others.Add(1)
		}
	}}.through(t, srv.Addr(), Config{RequestTimeout: patience})
	other := opened(t, at(srv.Addr()))
	holder := claim(key(t))
	acquired(t, other, holder)
	var claims []backend.Claim
	silent := inLine(holder.Key)
	silent.WaiterTTL = waiterTTL
	last := time.Now()
	for i := range waiters {
		c := inLine(holder.Key)
		c.WaiterTTL = waiterTTL
		enqueued(t, b, c, i+1)
		claims = append(claims, c)
		// A busy machine may take longer than waiterTTL for all of them.
		if time.Since(last) > waiterTTL/8 {
			last = time.Now()
			_, err := b.Heartbeat(t.Context(), claims)
			want(t, "Heartbeat", err, nil)
		}
	}
	enqueued(t, other, silent, waiters+1)
	reads.Store(0)
	others.Store(0)
	keepalives.Store(0)
	last = time.Now()
	beats := int64(0)
	for start := time.Now(); time.Since(start) < 3*waiterTTL; time.Sleep(waiterTTL / 10) {
		waiting, err := b.Heartbeat(t.Context(), claims)
		want(t, "Heartbeat", err, nil)
		if slices.ContainsFunc(waiting, func(err error) bool {
			return !errors.Is(err, backend.ErrHeld)
		}) {
			t.Fatalf("after %v, and %v since the last heartbeat, some do not wait: %v",
				time.Since(start), time.Since(last), waiting)
		}
		last = time.Now()
		beats++
	}
	// One lease, or a few on a machine so busy that it took long until all waited; a keepalive that
	// is not answered soon enough there is sent up to three times, see asking.
	if n := leases.Load(); n > waiters/10 || reads.Load() != beats ||
		keepalives.Load() > 3*n*beats || others.Load() > 0 {
		t.Errorf("%d heartbeats took %d reads, %d keepalives of %d leases and %d other requests",
			beats, reads.Load(), keepalives.Load(), n, others.Load())
	}
	state, err := other.Inspect(t.Context(), holder.Key)
	want(t, "Inspect", err, nil)
	for i, w := range state.Waiters {
		if i >= len(claims) || w.Owner != claims[i].Owner {
			t.Fatalf("%d wait, and number %d is %q", len(state.Waiters), i+1, w.Owner)
		}
	}
}

// Those that a heartbeat does not find waiting are to ask: who was granted the key, who was
// released, who is in the queue by another client, and who never was.
//
// covers: W2, W7
func TestHeartbeatTellsWhoWaits(t *testing.T) {
	srv := testserver.Etcd(t)
	b, other := opened(t, at(srv.Addr())), opened(t, at(srv.Addr()))
	holder := claim(key(t))
	acquired(t, other, holder)
	next, stays, leaves, others, never := inLine(holder.Key), inLine(holder.Key),
		inLine(holder.Key), inLine(holder.Key), inLine(holder.Key)
	enqueued(t, b, next, 1)
	enqueued(t, b, stays, 2)
	enqueued(t, b, leaves, 3)
	enqueued(t, other, others, 4)
	all := []backend.Claim{never, leaves, next, others, stays}
	beat := func(want ...bool) {
		t.Helper()
		answers, err := b.Heartbeat(t.Context(), all)
		waiting := make([]bool, len(answers))
		for i, answer := range answers {
			waiting[i] = errors.Is(answer, backend.ErrHeld)
			if !waiting[i] && !errors.Is(answer, backend.ErrLost) {
				t.Errorf("Heartbeat of claim %d = %v", i, answer)
			}
		}
		if err != nil || !slices.Equal(waiting, want) {
			t.Errorf("Heartbeat = %v, %v, want %v", answers, err, want)
		}
	}
	lc, sent := known(b, stays), time.Now()
	beat(false, true, true, false, true)
	b.mu.Lock()
	if lc.asked.Before(sent) || lc.until.Before(sent.Add(stays.WaiterTTL)) {
		t.Error("a heartbeat does not count as a request of those that it keeps")
	}
	b.mu.Unlock()
	want(t, "Release", storetest.Release(t.Context(), b, leaves), backend.ErrLost)
	beat(false, false, true, false, true)
	want(t, "Release", storetest.Release(t.Context(), other, holder), nil)
	beat(false, false, false, false, true)
	acquired(t, b, next)
	beat(false, false, false, false, true)
	enqueued(t, b, others, 2) // from now on it is ours
	beat(false, false, false, true, true)

	for what, bad := range map[string][]backend.Claim{
		"no Queue": {claim(stays.Key)}, "too many": make([]backend.Claim, backend.MaxHeartbeat+1),
	} {
		_, err := b.Heartbeat(t.Context(), bad)
		want(t, what, err, backend.ErrInvalid)
	}
}

// A claim whose owner has come to hold by another claim is to ask, and enters past those between.
//
// covers: G3, W2
func TestHeartbeatOfAnOwnerThatHolds(t *testing.T) {
	inPair(t, []Layout{Native}, func(t *testing.T, p pair) {
		holder, between := claim("k"), inLine("k")
		first, second := inLine("k"), inLine("k")
		first.Reentrant, first.Hold = true, "first"
		second.Reentrant, second.Owner, second.Hold = true, first.Owner, "second"
		acquired(t, p.b, holder)
		for i, c := range []backend.Claim{first, between, second} {
			enqueued(t, p.other, c, i+1)
		}
		want(t, "Release", storetest.Release(t.Context(), p.b, holder), nil)
		acquired(t, p.other, first)
		answers, err := p.other.Heartbeat(t.Context(), []backend.Claim{between, second})
		want(t, "Heartbeat", err, nil)
		want(t, "the answer to another", answers[0], backend.ErrHeld)
		want(t, "the answer to the owner's", answers[1], backend.ErrLost)
		acquired(t, p.other, second)
	})
}

// A heartbeat that cannot keep the lease keeps nobody.
//
// covers: X18, W9
func TestHeartbeatOnRevokedLease(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b, other := on(t, c, Config{}), opened(t, at(srv.Addr()))
	holder, waiter := claim(key(t)), inLine("")
	waiter.Key, waiter.WaiterTTL = holder.Key, slackFrom-time.Second
	acquired(t, other, holder)
	enqueued(t, b, waiter, 1)
	b.mu.Lock()
	id := b.leases[leaseSeconds(waiter.WaiterTTL)].id
	b.mu.Unlock()
	_, err := c.Revoke(t.Context(), id)
	want(t, "revoke", err, nil)
	if waiting, err := b.Heartbeat(t.Context(), []backend.Claim{waiter}); err != nil ||
		!errors.Is(waiting[0], backend.ErrLost) {
		t.Errorf("Heartbeat = %v, %v", waiting, err)
	}
	enqueued(t, b, waiter, 1)
}

// Heartbeats of a key with many places are less often, and ask for longer than the attempts of the
// claims do: an attempt after such a heartbeat puts the claim's entry on a lease that the next one
// can keep.
//
// covers: W8, W9
func TestHeartbeatForLongerThanTheAttempt(t *testing.T) {
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		holder := claim("k")
		waiter := inLine("k")
		waiter.WaiterTTL = 3 * time.Second
		acquired(t, p.other, holder)
		enqueued(t, p.b, waiter, 1)
		for range 3 { // two and three times as many places
			longer := waiter
			longer.WaiterTTL = 2 * known(p.b, waiter).waiterTTL()
			_, err := p.b.Heartbeat(t.Context(), []backend.Claim{longer})
			want(t, "Heartbeat", err, nil)
			enqueued(t, p.b, waiter, 1)
			sent := time.Now()
			answers, err := p.b.Heartbeat(t.Context(), []backend.Claim{longer})
			want(t, "Heartbeat", err, nil)
			want(t, "its answer", answers[0], backend.ErrHeld)
			if until := known(p.b, waiter).until; until.Before(sent.Add(longer.WaiterTTL)) {
				t.Errorf("kept for %v, and then removed %v after the heartbeat",
					longer.WaiterTTL, until.Sub(sent))
			}
		}
	})
}

// silentLeases answer no keepalive.
type silentLeases struct{ *simConn }

func (c silentLeases) LeaseKeepAlive(
	ctx context.Context, _ ...grpc.CallOption,
) (etcdserverpb.Lease_LeaseKeepAliveClient, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// A waiter's turn is proven, but the lease that its entry comes to be on has run for a while, and
// no keepalive is answered: it is not told that it holds.
//
// covers: X3, W6
func TestProofWithoutAKeepalive(t *testing.T) {
	const ttl = slackFrom - time.Second
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		holder, waiter := claim("k"), inLine("k")
		waiter.TTL = ttl
		acquired(t, p.b, holder)
		wake, err := p.other.Watch(t.Context(), waiter)
		want(t, "Watch", err, nil)
		enqueued(t, p.other, waiter, 1) // and the lease for its TTL is made
		time.Sleep(ttl * 3 / 5)
		_, err = p.other.Heartbeat(t.Context(), []backend.Claim{waiter}) // for its WaiterTTL
		want(t, "Heartbeat", err, nil)
		synctest.Wait()
		p.other.client.Lease = clientv3.NewLeaseFromLeaseClient(silentLeases{p.conn},
			p.other.client, time.Second)
		want(t, "Release", storetest.Release(t.Context(), p.b, holder), nil)
		if w := <-wake; w.Granted {
			t.Errorf(history.Broken+"told that it holds for %v, on a lease with %v left",
				w.Grant.TTL, known(p.other, waiter).lease.lasts(time.Now()))
		}
	})
}

// The answer to a waiter whose lease is not kept alive in time is that of a verb: it says neither
// that the caller's time is over, when it is the backend's, nor that the caller has cancelled it,
// when the backend is closed.
//
// covers: W9
func TestHeartbeatWithoutAKeepalive(t *testing.T) {
	for _, closes := range []bool{false, true} {
		inPair(t, []Layout{Native}, func(t *testing.T, p pair) {
			waiter := inLine("k")
			waiter.WaiterTTL = slackFrom - time.Second
			acquired(t, p.b, claim("k"))
			enqueued(t, p.other, waiter, 1)
			p.other.client.Lease = clientv3.NewLeaseFromLeaseClient(silentLeases{p.conn},
				p.other.client, time.Second)
			time.Sleep(time.Second)
			if closes {
				time.AfterFunc(time.Second, func() { _ = p.other.Close() })
			}
			answers, err := p.other.Heartbeat(t.Context(), []backend.Claim{waiter})
			want(t, "Heartbeat", err, nil)
			switch answer := answers[0]; {
			case closes:
				want(t, "its answer when the backend closes", answer, backend.ErrClosed)
			case backend.AnswerOf(answer) != backend.Unknown,
				errors.Is(answer, context.DeadlineExceeded), errors.Is(answer, context.Canceled):
				t.Errorf("its answer is %v, want that nobody knows", answer)
			}
		})
	}
}
