package etcdbackend

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// endEarly ends the lease of a hold as a leader does that was replaced (etcd #15247): a member that
// starts again is a leader of the next term, and the lease, which it knows, is revoked.
func endEarly(t *testing.T, srv *testserver.EtcdMember, c *clientv3.Client, b *Backend,
	hold backend.Claim,
) {
	t.Helper()
	srv.Kill()
	srv.Restart()
	revoke(t, c, b, hold)
}

func revoke(t *testing.T, c *clientv3.Client, b *Backend, hold backend.Claim) {
	t.Helper()
	b.mu.Lock()
	lease := b.claims[b.scheme.paths(hold.Key).topic(hold.ID())].lease.id
	b.mu.Unlock()
	eventually(t, "the lease to be revoked", func() error {
		_, err := c.Revoke(t.Context(), lease)
		return err
	})
}

// A hold whose lease an earlier leader has ended is believed in until its deadline, and until then
// nobody else is granted the lock: neither who waits, nor who comes.
//
// covers: X20
func TestEarlyEnd(t *testing.T) {
	for name, how := range map[string]struct {
		layout Layout
		mode   func(c *backend.Claim) // of the hold
	}{
		"exclusive": {Native, func(*backend.Claim) {}},
		"etcdctl":   {Etcdctl, func(*backend.Claim) {}},
		"shared":    {Native, func(c *backend.Claim) { c.Mode = backend.Shared }},
		"permit":    {Native, func(c *backend.Claim) { c.Mode, c.Limit = backend.Permit, 2 }},
		"reentrant": {Native, func(c *backend.Claim) {
			c.Reentrant, c.Hold = true, backend.NewOwner()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testserver.Etcd(t)
			c := client(t, srv.Addr())
			cfg := Config{Layout: how.layout, RequestTimeout: patience}
			b, other := on(t, c, cfg), on(t, client(t, srv.Addr()), cfg)
			hold, waiter := claim(key(t)), inLine("")
			hold.TTL, waiter.Key = 3*time.Second, hold.Key
			how.mode(&hold)
			enqueuedBehind := func() {
				_, err := other.TryAcquire(t.Context(), waiter)
				want(t, "who waits", err, backend.ErrHeld)
			}
			began := time.Now()
			g := acquired(t, b, hold)
			enqueuedBehind()
			endEarly(t, srv, c, b, hold)
			believed := began.Add(g.TTL)
			if time.Until(believed) > 0 { // else the machine stood still
				state, err := other.Inspect(t.Context(), hold.Key)
				if err != nil || len(state.Holders) != 1 {
					t.Errorf("Inspect = %+v, %v, want the hold", state.Holders, err)
				}
			}
			eventually(t, "the next to be granted the lock", func() error {
				_, fresh := other.TryAcquire(t.Context(), claim(hold.Key))
				_, err := other.TryAcquire(t.Context(), waiter)
				if early := time.Until(believed); early > 0 && (fresh == nil || err == nil) {
					t.Fatalf("another was granted the lock %v before the hold's deadline: %v, %v",
						early, fresh, err)
				}
				return err
			})
			want(t, "Renew of the hold", b.Renew(t.Context(), hold), backend.ErrLost)
		})
	}
}

// A hold that ended because its client died blocks nobody any more, as no leader was replaced.
//
// covers: X20, G6
func TestRealEnd(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b, other := on(t, c, Config{}), on(t, client(t, srv.Addr()), Config{})
	hold, waiter := claim(key(t)), inLine("")
	waiter.Key = hold.Key
	acquired(t, b, hold)
	wake, err := other.Watch(t.Context(), waiter)
	want(t, "Watch", err, nil)
	_, err = other.TryAcquire(t.Context(), waiter)
	want(t, "who waits", err, backend.ErrHeld)
	revoke(t, c, b, hold)
	select {
	case <-wake:
	case <-time.After(patience):
		t.Fatal("who waits was not woken")
	}
	acquired(t, other, waiter)
	want(t, "Release", storetest.Release(t.Context(), other, waiter), nil)
	want(t, "Release of the hold", storetest.Release(t.Context(), b, hold), backend.ErrLost)
	if left := entries(t, c, b.scheme.paths(hold.Key).queue); left != nil {
		t.Errorf("left behind: %q", left)
	}
	again := claim(hold.Key)
	acquired(t, b, again)
	revoke(t, c, b, again)
	acquired(t, other, claim(hold.Key)) // that did not wait
}

// As soon as there is another leader, a renewal puts its hold on a lease that earlier ones do not
// know, and so does who waits.
//
// covers: X20
func TestRenewalLeavesAnEarlierLeadersLease(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b, other := on(t, c, Config{RequestTimeout: patience}), on(t, client(t, srv.Addr()),
		Config{RequestTimeout: patience})
	hold, waiter := claim(key(t)), inLine("")
	waiter.Key = hold.Key
	g := acquired(t, b, hold)
	_, err := other.TryAcquire(t.Context(), waiter)
	want(t, "who waits", err, backend.ErrHeld)
	first, queued := known(b, hold).lease, known(other, waiter).lease
	srv.Kill()
	srv.Restart()
	eventually(t, "the hold to be renewed on another lease", func() error {
		if err := b.Renew(t.Context(), hold); err != nil {
			return err
		}
		if known(b, hold).lease == first {
			return errors.New("it is on its first lease")
		}
		return nil
	})
	_, err = other.TryAcquire(t.Context(), waiter)
	want(t, "who waits", err, backend.ErrHeld)
	for _, l := range []*lease{first, queued} {
		_, err := c.Revoke(t.Context(), l.id)
		want(t, "Revoke", err, nil)
	}
	want(t, "Renew", b.Renew(t.Context(), hold), nil)
	var held *backend.HeldError
	if _, err := other.TryAcquire(t.Context(), waiter); !errors.As(err, &held) ||
		held.Position != 1 {
		t.Errorf("who waits: %v", err)
	}
	want(t, "Release", storetest.Release(t.Context(), b, hold), nil)
	if next := acquired(t, other, waiter); next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
}

// A hold outlives its first shadow: a renewal makes another before the lease of that ends.
//
// covers: X20
func TestShadowIsMadeAnew(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b := on(t, c, Config{})
	hold := claim(key(t))
	acquired(t, b, hold)
	shadow := func() int64 {
		t.Helper()
		p := b.scheme.paths(hold.Key)
		reply, err := c.Get(t.Context(), p.shadow(known(b, hold).key))
		if err != nil || len(reply.Kvs) != 1 {
			t.Fatalf("the shadow: %+v, %v", reply.Kvs, err)
		}
		return reply.Kvs[0].Lease
	}
	first := shadow()
	want(t, "Renew", b.Renew(t.Context(), hold), nil)
	if shadow() != first {
		t.Error("a renewal made another shadow, while the first lasts")
	}
	b.mu.Lock()
	b.shadows.began = b.shadows.began.Add(-2*shadowTime + hold.TTL)
	b.mu.Unlock()
	want(t, "Renew", b.Renew(t.Context(), hold), nil)
	if shadow() == first {
		t.Error("the shadow is on a lease that ends before the hold")
	}
	want(t, "Release", storetest.Release(t.Context(), b, hold), nil)
}

// The shadow of a hold that is as long as it is rarely renewed is there until the hold may end.
//
// covers: X20
func TestShadowOfALongHold(t *testing.T) {
	inPair(t, []Layout{Native}, func(t *testing.T, p pair) {
		hold := claim("k")
		hold.TTL = 6 * shadowTime
		acquired(t, p.b, hold)
		time.Sleep(hold.TTL * 9 / 10)
		p.etcd.endEarly(p.b, hold)
		if _, err := p.other.TryAcquire(t.Context(), claim("k")); !errors.Is(err, backend.ErrHeld) {
			t.Errorf(history.Broken+"TryAcquire = %v while another believes that it holds", err)
		}
	})
}

// An orphan that goes while it is to be buried, as its claim is released, does not come back: it
// would be in the way of everybody for the length of its lease.
//
// covers: X20
func TestOrphanThatGoesIsNotBuried(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	var gone atomic.Pointer[string]
	b := on(t, c, Config{})
	other, _ := tapped(t, srv.Addr(), func(txn *etcdserverpb.TxnRequest) {
		for _, op := range txn.Success {
			put := op.GetRequestPut()
			if put == nil || !strings.Contains(string(put.Value), `"buried":true`) {
				continue
			}
			orphan := string(put.Key)
			if gone.CompareAndSwap(nil, &orphan) {
				_, err := c.Delete(t.Context(), orphan)
				want(t, "the orphan to go", err, nil)
			}
		}
	})
	hold := claim(key(t))
	hold.TTL = 10 * patience
	acquired(t, b, hold)
	endEarly(t, srv, c, b, hold)
	next := claim(hold.Key)
	eventually(t, "the lock, as there is no orphan any more", func() error {
		_, err := other.TryAcquire(t.Context(), next)
		return err
	})
	if gone.Load() == nil {
		t.Fatal("nothing was to be buried: this test shows nothing")
	}
	if left, err := c.Get(t.Context(), *gone.Load()); err != nil || len(left.Kvs) != 0 {
		t.Errorf("the orphan is there again: %v, %v", left.Kvs, err)
	}
	want(t, "Release", storetest.Release(t.Context(), other, next), nil)
}

// Orphans that are buried together are so for as long as the longest of their leases: the claim
// that has that one believes in it.
//
// covers: X20
func TestOrphansOfUnequalLeases(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b, other := on(t, c, Config{}), on(t, client(t, srv.Addr()), Config{RequestTimeout: patience})
	long := claim(key(t))
	long.Mode, long.TTL = backend.Shared, time.Hour
	short := long
	short.Owner, short.TTL = backend.NewOwner(), time.Minute
	for _, hold := range []backend.Claim{short, long} {
		acquired(t, b, hold)
	}
	srv.Kill()
	srv.Restart()
	for _, hold := range []backend.Claim{short, long} {
		revoke(t, c, b, hold)
	}
	eventually(t, "a writer to be refused beside readers who believe", func() error {
		if _, err := other.TryAcquire(t.Context(), claim(long.Key)); !errors.Is(err,
			backend.ErrHeld) {
			return fmt.Errorf("TryAcquire = %w", err)
		}
		return nil
	})
	left, err := c.Get(t.Context(), b.scheme.paths(long.Key).queue, clientv3.WithPrefix())
	want(t, "Get", err, nil)
	buried := 0
	for _, kv := range left.Kvs {
		if !strings.Contains(string(kv.Value), `"buried":true`) {
			continue
		}
		buried++
		lease, err := c.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease))
		want(t, "TimeToLive", err, nil)
		if lasts := time.Duration(lease.GrantedTTL) * time.Second; lasts < long.TTL {
			t.Errorf("buried for %v, and a hold is believed in for %v", lasts, long.TTL)
		}
	}
	if buried != 2 {
		t.Errorf("%d orphans were buried, want both: %v", buried, left.Kvs)
	}
}

// More orphans than one transaction can settle.
func TestManyOrphans(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b, other := on(t, c, Config{}), on(t, client(t, srv.Addr()), Config{RequestTimeout: patience})
	permit := claim(key(t))
	permit.Mode, permit.Limit = backend.Permit, 2*maxOrphans+2
	var holds []backend.Claim
	for range permit.Limit {
		one := permit
		one.Owner = backend.NewOwner()
		acquired(t, b, one)
		holds = append(holds, one)
	}
	revoke(t, c, b, holds[0]) // they share it
	acquired(t, other, claim(permit.Key))
}

// A Put that was sent twice comes late, when the hold that it began has ended early. It does not
// make an entry, which would hide the hold's shadow.
//
// covers: X20, A4
func TestLatePutHidesNoShadow(t *testing.T) {
	srv := testserver.Etcd(t)
	var put atomic.Pointer[etcdserverpb.TxnRequest]
	b, c := tapped(t, srv.Addr(), func(txn *etcdserverpb.TxnRequest) {
		if len(txn.Success) == 2 && txn.Success[0].GetRequestPut() != nil &&
			txn.Success[1].GetRequestRange() != nil {
			put.CompareAndSwap(nil, txn) // in the queue
		}
	})
	first, second := claim(key(t)), inLine("")
	second.Key = first.Key
	acquired(t, b, first)
	enqueued(t, b, second, 1)
	want(t, "Release", storetest.Release(t.Context(), b, first), nil)
	acquired(t, b, second)
	revoke(t, c, b, second)
	reply, err := etcdserverpb.NewKVClient(c.ActiveConnection()).Txn(t.Context(), put.Load())
	if err != nil || reply.Succeeded {
		t.Errorf("the same Put again: made %v, %v", reply.GetSucceeded(), err)
	}
}

// endEarly has a new leader elected, and the one before end the lease of b's claim c, in whose hold
// b believes.
func (s *simEtcd) endEarly(b *Backend, c backend.Claim) {
	s.elect(s.dice("election"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoke(int64(known(b, c).lease.id))
}

// grantedAfter asks for c until it is granted, which must be after the deadline of the hold before,
// and not long after it.
func grantedAfter(t *testing.T, b *Backend, c backend.Claim, deadline time.Time) {
	t.Helper()
	for {
		_, err := b.TryAcquire(t.Context(), c)
		left := time.Until(deadline)
		switch {
		case err == nil && left > 0:
			t.Errorf("granted %v before the deadline of the hold before", left)
			return
		case err == nil:
			return
		case left < -2*c.TTL:
			t.Fatal("the lock is not to be had any more")
		}
		want(t, "TryAcquire", err, backend.ErrHeld)
		time.Sleep(100 * time.Millisecond)
	}
}

// A claim whose hold has ended early and that asks again waits like everybody until nobody can
// believe in that hold: another request of the claim may just have been granted it. So does the
// client's next claim, once the first is known to be lost.
//
// covers: X20, A4
func TestOwnOrphan(t *testing.T) {
	for _, who := range []string{"the same claim", "the next claim"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimEtcd(1, simFaults{})
				defer s.close()
				c, _ := s.client(0)
				defer func() { _ = c.Close() }()
				b := on(t, c, Config{})
				defer func() { _ = b.Close() }()
				hold := inLine("k")
				hold.TTL, hold.WaiterTTL = simTTL, simTTL
				began := time.Now()
				g := acquired(t, b, hold)
				s.endEarly(b, hold)
				again := hold
				if who == "the next claim" {
					want(t, "Renew", b.Renew(t.Context(), hold), backend.ErrLost)
					again.Owner = backend.NewOwner()
				}
				grantedAfter(t, b, again, began.Add(g.TTL))
			})
		})
	}
}

// Whoever waits behind orphans, one of which waits as well, finds at its next heartbeat that there
// is something to do, also when it heard of no event.
//
// covers: X20, W2
func TestHeartbeatFindsOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimEtcd(1, simFaults{})
		defer s.close()
		one, _ := s.client(0)
		two, _ := s.client(1)
		dead, b := on(t, one, Config{}), on(t, two, Config{})
		defer func() { _, _, _, _ = dead.Close(), b.Close(), one.Close(), two.Close() }()
		hold, second, waiter := claim("k"), inLine("k"), inLine("k")
		hold.TTL = simTTL
		acquired(t, dead, hold)
		enqueued(t, dead, second, 1)
		enqueued(t, b, waiter, 2)
		p := b.scheme.paths("k")
		dead.mu.Lock()
		proven := *dead.claims[p.topic(second.ID())].entry // as if its turn had seemed to come
		leases := []int64{
			int64(dead.claims[p.topic(hold.ID())].lease.id),
			int64(dead.claims[p.topic(second.ID())].lease.id),
		}
		on := dead.shadows
		dead.mu.Unlock()
		proven.Held, proven.Created = true, proven.created
		value, err := json.Marshal(proven.record)
		want(t, "record", err, nil)
		_, _, err = dead.commit(t.Context(), nil,
			[]clientv3.Op{clientv3.OpPut(p.shadow(proven.key), string(value),
				clientv3.WithLease(on.id))}, nil)
		want(t, "the shadow of one who waits", err, nil)
		s.mu.Lock()
		for _, id := range leases {
			s.revoke(id)
		}
		s.mu.Unlock()
		answers, err := b.Heartbeat(t.Context(), []backend.Claim{waiter})
		want(t, "Heartbeat", err, nil)
		want(t, "its answer", answers[0], backend.ErrLost)
		acquired(t, b, waiter)
	})
}
