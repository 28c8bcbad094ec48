package etcdbackend

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// known is what a client knows of a claim of its own.
func known(b *Backend, c backend.Claim) *localClaim {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.claims[b.scheme.paths(c.Key).topic(c.ID())]
}

// Whoever needs a keepalive has waited for its answer when it is told that it holds, or that it
// waits.
//
// covers: X3, A6
func TestNobodyBelievesBeforeTheKeepalive(t *testing.T) {
	srv := testserver.Etcd(t)
	var answers atomic.Int64
	b, _ := tap{after: func(reply any) {
		if _, ok := reply.(*etcdserverpb.LeaseKeepAliveResponse); ok {
			time.Sleep(50 * time.Millisecond)
			answers.Add(1)
		}
	}}.through(t, srv.Addr(), Config{RequestTimeout: patience})
	short := slackFrom - time.Second // no slack: each request needs a keepalive from after it began
	first, second, waiter := claim(key(t)), claim(key(t)), inLine("")
	first.TTL, second.TTL, waiter.Key, waiter.WaiterTTL = short, short, first.Key, short
	acquired(t, b, first)
	for what, request := range map[string]func() error{
		"TryAcquire": func() error {
			_, err := b.TryAcquire(t.Context(), second)
			return err
		},
		"Renew": func() error { return b.Renew(t.Context(), first) },
		"TryAcquire in the queue": func() error {
			if _, err := b.TryAcquire(t.Context(), waiter); !errors.Is(err, backend.ErrHeld) {
				return err
			}
			return nil
		},
		"Heartbeat": func() error {
			if _, err := b.TryAcquire(t.Context(), waiter); !errors.Is(err, backend.ErrHeld) {
				return err
			}
			answers.Store(0)
			_, err := b.Heartbeat(t.Context(), []backend.Claim{waiter})
			return err
		},
	} {
		answers.Store(0)
		want(t, what, request(), nil)
		if answers.Load() == 0 {
			t.Errorf("%s was answered before the keepalive", what)
		}
	}
}

// A keepalive that is refused is no answer to the claim whose entry it is for: that holds, or
// waits, and is to be released.
//
// covers: B8
func TestClaimWhoseKeepaliveIsRefused(t *testing.T) {
	srv := testserver.Etcd(t)
	var refused atomic.Bool
	b, c := tap{refuse: func(req any) error {
		if _, ok := req.(*etcdserverpb.LeaseKeepAliveRequest); ok && refused.Load() {
			return rpctypes.ErrGRPCPermissionDenied
		}
		return nil
	}}.through(t, srv.Addr(), Config{})
	short := slackFrom - time.Second // no slack: each request needs a keepalive from after it began
	first := claim(key(t))
	first.TTL = short
	acquired(t, b, first)
	for what, acquire := range map[string]func(...backend.Claim) error{
		"TryAcquire": func(all ...backend.Claim) error {
			_, err := b.TryAcquire(t.Context(), all[0])
			return err
		},
		"TryAcquireAll": func(all ...backend.Claim) error {
			_, err := b.TryAcquireAll(t.Context(), all)
			return err
		},
	} {
		all := claims(t, 2)
		for i := range all {
			all[i].TTL = short
		}
		refused.Store(true)
		if err := acquire(all...); backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%s = %v, want that nobody knows", what, err)
		}
		refused.Store(false)
		all[0].NoneInFlight = false
		want(t, "Release after "+what, storetest.Release(t.Context(), b, all[0]), nil)
	}
	waits := inLine(first.Key)
	waits.WaiterTTL = short
	refused.Store(true)
	if _, err := b.TryAcquire(t.Context(), waits); backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("TryAcquire in the queue = %v, want that nobody knows", err)
	}
	refused.Store(false)
	want(t, "Release of what waits", storetest.Release(t.Context(), b, waits), backend.ErrLost)
	if reply, err := c.Get(t.Context(), b.scheme.paths(first.Key).queue+"x/",
		prefixOnly...); err != nil || reply.Count != 1 {
		t.Errorf("%d entries, %v, want the holder's", reply.Count, err)
	}
}

// An entry whose claim has ended is removed from a lease that goes on. The claim comes back at the
// worst moments: either it is told that it is lost, or its entry stays.
//
// covers: B3, B8, A4
func TestBackWhileRemoved(t *testing.T) {
	for _, moment := range []string{"look", "deletion"} {
		for _, how := range []string{"TryAcquire", "Renew"} {
			t.Run(how+" at the "+moment, func(t *testing.T) {
				srv := testserver.Etcd(t)
				alive, silent := claim(key(t)), claim(key(t))
				alive.TTL, silent.TTL = slackFrom-time.Second, slackFrom-time.Second
				var b *Backend
				var armed atomic.Bool
				var back error
				returned := make(chan struct{})
				comeBack := func() {
					if !armed.CompareAndSwap(true, false) {
						return
					}
					if how == "Renew" {
						back = b.Renew(context.Background(), silent)
					} else {
						_, back = b.TryAcquire(context.Background(), silent)
					}
					close(returned)
				}
				b, _ = tap{
					before: func(req any) {
						txn, ok := req.(*etcdserverpb.TxnRequest)
						if ok && moment == "deletion" && len(txn.Success) == 2 &&
							txn.Success[0].GetRequestDeleteRange() != nil {
							comeBack()
						}
					},
					after: func(reply any) {
						if _, ok := reply.(*etcdserverpb.RangeResponse); ok && moment == "look" {
							comeBack()
						}
					},
				}.through(t, srv.Addr(), Config{RequestTimeout: patience})
				acquired(t, b, alive)
				acquired(t, b, silent)
				lc := known(b, silent)
				b.mu.Lock()
				lc.until = time.Now().Add(-time.Millisecond) // as if it had been silent for its TTL
				b.mu.Unlock()
				armed.Store(true)
				want(t, "Renew of the other", b.Renew(t.Context(), alive), nil)
				select {
				case <-returned:
				case <-time.After(patience):
					t.Fatal("the silent claim's entry was not looked for")
				}
				b.tasks.Wait() // for the removal
				_, err := opened(t, at(srv.Addr())).TryAcquire(t.Context(), claim(silent.Key))
				if held := errors.Is(err, backend.ErrHeld); back == nil && !held {
					t.Errorf("%s said that it holds, and another claim was granted", how)
				} else if back != nil && !errors.Is(back, backend.ErrLost) {
					t.Errorf("%s = %v", how, back)
				}
			})
		}
	}
}

// A slot is not used again while an attempt of its claim is in progress, although the claim was
// released.
//
// covers: A4, C2
func TestSlotOfAttemptInProgress(t *testing.T) {
	srv := testserver.Etcd(t)
	sending, send := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	b, _ := tapped(t, srv.Addr(), func(*etcdserverpb.TxnRequest) {
		if first.CompareAndSwap(false, true) {
			close(sending)
			<-send
		}
	})
	c := claim(key(t))
	answer := make(chan error, 1)
	go func() {
		_, err := b.TryAcquire(context.Background(), c)
		answer <- err
	}()
	<-sending
	slot := known(b, c).slot
	want(t, "Release", storetest.Release(t.Context(), b, c), backend.ErrLost)
	next := claim(key(t))
	acquired(t, b, next)
	if again := known(b, next).slot; again == slot {
		t.Errorf("slot %q is used by two claims", slot)
	}
	close(send)
	want(t, "TryAcquire that was released before", <-answer, backend.ErrLost)
}

// A read that is wrong, such as one from the past, grants nothing: the reply of a write does.
//
// covers: X7
func TestStaleReadGrantsNothing(t *testing.T) {
	srv := testserver.Etcd(t)
	var stale atomic.Bool
	const holders = "/holders.1"
	b, _ := tap{after: func(reply any) {
		if r, ok := reply.(*etcdserverpb.RangeResponse); ok && stale.Load() && len(r.Kvs) > 1 {
			r.Kvs = slices.DeleteFunc(r.Kvs, func(kv *mvccpb.KeyValue) bool {
				return strings.HasSuffix(string(kv.Key), holders)
			})
		}
	}}.through(t, srv.Addr(), Config{})
	other := opened(t, at(srv.Addr()))
	other.id = "holders"
	holder, waiter := claim(key(t)), inLine("")
	waiter.Key = holder.Key
	acquired(t, other, holder)
	enqueued(t, b, waiter, 1)
	stale.Store(true)
	enqueued(t, b, waiter, 1)
	want(t, "Renew", b.Renew(t.Context(), holder), backend.ErrLost)
}

// The holder enters again and then releases its first hold. Whoever is next in the queue, and
// watches, does not hold yet.
//
// covers: W6, G3
func TestReentryAheadOfTheQueue(t *testing.T) {
	srv := testserver.Etcd(t)
	b, other := opened(t, at(srv.Addr())), opened(t, at(srv.Addr()))
	first := claim(key(t))
	first.Reentrant, first.Hold = true, backend.NewOwner()
	second := first
	second.Hold = backend.NewOwner()
	waiter := inLine(first.Key)
	acquired(t, other, first)
	wake, err := b.Watch(t.Context(), waiter)
	want(t, "Watch", err, nil)
	enqueued(t, b, waiter, 1)
	acquired(t, other, second)
	lc := known(b, waiter)
	written := func() int64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return lc.entry.modified
	}
	before := written()
	want(t, "Release of the first hold", storetest.Release(t.Context(), other, first), nil)
	eventually(t, "the waiter to find out whose turn it is", func() error {
		if written() == before {
			return errors.New("not yet")
		}
		return nil
	})
	select {
	case w := <-wake:
		if w.Granted {
			t.Fatalf("woken with a grant while another holds: %+v", w)
		}
	default:
	}
	enqueued(t, b, waiter, 1)
	want(t, "Release of the second hold", storetest.Release(t.Context(), other, second), nil)
	for timeout := time.After(patience); ; {
		select {
		case w := <-wake:
			if w.Granted {
				return
			}
		case <-timeout:
			t.Fatal("not woken with the grant")
		}
	}
}

// What a watcher is told of the queue may be older than events that it has seen.
//
// covers: W2, X8
func TestObserve(t *testing.T) {
	b := on(t, client(t, "127.0.0.1:1"), Config{})
	p := b.scheme.paths("k")
	read := func(revision int64, entries ...*entry) *queue {
		return &queue{revision: revision, entries: entries}
	}
	at := func(key string, created int64) *entry {
		return &entry{
			key: key, created: created, modified: created, kind: kind{class: exclusive},
			record: record{Owner: key},
		}
	}
	wake, leave := b.hub.Enter("topic")
	defer leave()
	woken := func() bool {
		select {
		case <-wake:
			return true
		default:
			return false
		}
	}
	w := &watcher{paths: p, ready: make(chan struct{})}
	b.watchers[p.queue] = w
	defer delete(b.watchers, p.queue)
	b.confirmed(w, 10)
	observe := func(q *queue) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.observe(p, q, "topic")
	}
	observe(read(9, at("a", 5), at("b", 6)))
	if w.queue != nil || !woken() {
		t.Errorf("a queue from before the watch is taken: %+v", w.queue)
	}
	b.deleted(w, "a", 12)
	observe(read(11, at("a", 5), at("b", 6), at("c", 7)))
	if w.queue != nil || !woken() {
		t.Errorf("a queue from before a deletion that was seen is taken: %+v", w.queue)
	}
	one, two := at("b", 6), at("c", 7)
	one.granted = true
	observe(read(12, one, two))
	b.deleted(w, "b", 13)
	if head := w.queue.entries[0]; len(w.queue.entries) != 1 || head.key != "c" || !head.granted {
		t.Errorf("a deletion is not heeded: %+v", head)
	}
	observe(read(10, at("a", 5), at("b", 6), at("c", 7)))
	if len(w.queue.entries) != 1 {
		t.Error("an older queue takes the place of a newer")
	}
	orphan := func(name string, created int64) *entry {
		e := at(p.shadow(p.queue+name), created)
		e.shadowed = p.queue + name
		return e
	}
	gone, goes, waits := orphan("x/1", 6), orphan("x/2", 8), at("d", 9)
	gone.granted = true
	observe(read(20, gone, goes, waits))
	b.deleted(w, gone.key, 21) // one write removes both
	b.deleted(w, goes.key, 21)
	if len(w.queue.entries) != 1 || !waits.granted {
		t.Errorf("of two orphans that end together one stays: %+v", w.queue.entries)
	}
	b.confirmed(w, 5000)
	if w.queue != nil {
		t.Error("a watch that was made anew keeps what it may have missed something of")
	}
}

// A Put that was sent twice, and lands once more after its claim was released, creates nothing:
// although the caller, who was answered, says that nothing is in flight.
//
// covers: A4, C2
func TestResentPutAfterRelease(t *testing.T) {
	srv := testserver.Etcd(t)
	var put atomic.Pointer[etcdserverpb.TxnRequest]
	b, c := tapped(t, srv.Addr(), func(txn *etcdserverpb.TxnRequest) {
		put.CompareAndSwap(nil, txn)
	})
	held := claim(key(t))
	held.NoneInFlight = true
	acquired(t, b, held)
	b.mu.Lock()
	// As after a resent request.
	b.claims[b.scheme.paths(held.Key).topic(held.ID())].putPending = true
	b.mu.Unlock()
	want(t, "Release", storetest.Release(t.Context(), b, held), nil)
	reply, err := etcdserverpb.NewKVClient(c.ActiveConnection()).Txn(t.Context(), put.Load())
	if err != nil || reply.Succeeded {
		t.Errorf("the same Put again: made %v, %v", reply.GetSucceeded(), err)
	}
}

// losing returns a backend with two members, as far as it knows. Once lost is set, the answer to
// the next transaction is lost, and the transaction made again at the other one.
func losing(t *testing.T) (b *Backend, c *clientv3.Client, lost *atomic.Bool) {
	srv := testserver.Etcd(t)
	lost = new(atomic.Bool)
	b, c = tap{lose: func(req any) bool {
		_, txn := req.(*etcdserverpb.TxnRequest)
		return txn && lost.CompareAndSwap(true, false)
	}}.through(t, srv.Addr(), Config{RequestTimeout: 2 * time.Second})
	c.SetEndpoints(srv.Addr(), srv.Addr())
	return b, c, lost
}

// A release that is made again, as a member did not answer, finds nothing: the first may have ended
// the hold, or it was over before. That is not known, and no loss.
//
// covers: B8, C2
func TestReleaseThatIsMadeAgain(t *testing.T) {
	b, _, lost := losing(t)
	held := claim(key(t))
	acquired(t, b, held)
	lost.Store(true)
	if _, err := b.Release(t.Context(), held); lost.Load() ||
		backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("Release = %v, want that nobody knows", err)
	}
	want(t, "Release of what is over", storetest.Release(t.Context(), b, held), backend.ErrLost)
}

// A hasty proxy has less patience than the client gave it: of some transactions that compare it
// says that their time is over, when etcd has made them.
type hasty struct {
	etcdserverpb.UnimplementedKVServer
	kv   etcdserverpb.KVClient
	over atomic.Int64 // so many of the next ones
}

func (h *hasty) Range(ctx context.Context,
	r *etcdserverpb.RangeRequest,
) (*etcdserverpb.RangeResponse, error) {
	return h.kv.Range(ctx, r)
}

func (h *hasty) Txn(ctx context.Context,
	r *etcdserverpb.TxnRequest,
) (*etcdserverpb.TxnResponse, error) {
	reply, err := h.kv.Txn(ctx, r)
	if len(r.Compare) > 0 && h.over.Add(-1) >= 0 {
		return nil, status.Error(codes.DeadlineExceeded, "upstream request timeout")
	}
	return reply, err
}

// A proxy that gives up early knows no more than we do. etcd's client would make the transaction
// again by itself, find the hold gone, and call a release lost that was made.
//
// covers: C4
func TestReleaseThroughAHastyProxy(t *testing.T) {
	srv := testserver.Etcd(t)
	h := &hasty{kv: etcdserverpb.NewKVClient(client(t, srv.Addr()).ActiveConnection())}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	want(t, "listen", err, nil)
	proxy := grpc.NewServer()
	etcdserverpb.RegisterKVServer(proxy, h)
	go func() { _ = proxy.Serve(listener) }()
	t.Cleanup(proxy.Stop)
	b, held := opened(t, at(listener.Addr().String())+"?request_timeout=300ms"), claim(key(t))
	acquired(t, opened(t, at(srv.Addr())), held)
	h.over.Store(1)
	held.NoneInFlight = true // else it would ask for a lease, which is none of the proxy's
	if _, err := b.Release(t.Context(), held); h.over.Load() > 0 ||
		backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("Release = %v, want that nobody knows", err)
	}
	want(t, "Release of what is over", storetest.Release(t.Context(), b, held), backend.ErrLost)
}

// Between the read and the write of an attempt the queue changes, and what fitted does not fit any
// more.
//
// covers: W15, G3
func TestQueueChangesBeforeTheWrite(t *testing.T) {
	srv := testserver.Etcd(t)
	var armed atomic.Bool
	var meanwhile func()
	b, _ := tapped(t, srv.Addr(), func(*etcdserverpb.TxnRequest) {
		if armed.CompareAndSwap(true, false) {
			meanwhile()
		}
	})
	other := opened(t, at(srv.Addr()))

	reader, late, writer := claim(key(t)), claim(""), inLine("")
	reader.Mode, late.Mode, late.Key, writer.Key = backend.Shared, backend.Shared, reader.Key,
		reader.Key
	acquired(t, other, reader)
	meanwhile = func() { enqueued(t, other, writer, 1) }
	armed.Store(true)
	_, err := b.TryAcquire(t.Context(), late)
	want(t, "a reader that would overtake a writer", err, backend.ErrHeld)

	first := claim(key(t))
	first.Reentrant, first.Hold = true, backend.NewOwner()
	second, next := first, claim(first.Key)
	second.Hold = backend.NewOwner()
	acquired(t, other, first)
	meanwhile = func() {
		meanwhile = func() { // before the write that enters; the first one found the lock taken
			want(t, "Release", storetest.Release(context.Background(), other, first), nil)
			acquired(t, other, next)
		}
		armed.Store(true)
	}
	armed.Store(true)
	_, err = b.TryAcquire(t.Context(), second)
	want(t, "entering again when the first hold is over", err, backend.ErrHeld)
	want(t, "Renew by the next", other.Renew(t.Context(), next), nil)

	// And from the queue.
	holder, first, next, second := claim(key(t)), inLine(""), inLine(""), inLine("")
	for _, c := range []*backend.Claim{&first, &next, &second} {
		c.Key = holder.Key
	}
	first.Reentrant, first.Hold = true, backend.NewOwner()
	second.Reentrant, second.Hold, second.Owner = true, backend.NewOwner(), first.Owner
	acquired(t, other, holder)
	enqueued(t, other, first, 1)
	enqueued(t, other, next, 2)
	enqueued(t, b, second, 3)
	want(t, "Release", storetest.Release(t.Context(), other, holder), nil)
	acquired(t, other, first)
	meanwhile = func() {
		want(t, "Release", storetest.Release(context.Background(), other, first), nil)
		acquired(t, other, next)
	}
	armed.Store(true)
	_, err = b.TryAcquire(t.Context(), second)
	want(t, "entering again from the queue when the first hold is over", err, backend.ErrHeld)
	want(t, "Renew by the next", other.Renew(t.Context(), next), nil)
}

// A claim's entry is on the lease of the client that renews it, whoever else made it or wrote to
// it.
//
// covers: B8
func TestRenewalMovesTheEntry(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	one, two := on(t, c, Config{}), on(t, c, Config{})
	both := claim(key(t))
	acquired(t, one, both)
	acquired(t, two, both)
	want(t, "Renew", one.Renew(t.Context(), both), nil)
	one.mu.Lock()
	mine := one.leases[leaseSeconds(both.TTL)].id
	one.mu.Unlock()
	reply, err := c.Get(t.Context(), known(one, both).key)
	if err != nil || len(reply.Kvs) != 1 || reply.Kvs[0].Lease != int64(mine) {
		t.Errorf("the entry is %v, %v, want it on lease %d", reply.Kvs, err, mine)
	}
}

// A heartbeat is answered while the turn of its claim is being proved: the grant is not handed
// over, as it would be counted from that heartbeat, and the lease is not.
//
// covers: B3
func TestProofBesideAnAnsweredHeartbeat(t *testing.T) {
	srv := testserver.Etcd(t)
	var stall atomic.Bool
	reached, goOn := make(chan struct{}), make(chan struct{})
	b, _ := tap{before: func(req any) {
		if _, ok := req.(*etcdserverpb.TxnRequest); ok && stall.CompareAndSwap(true, false) {
			close(reached)
			<-goOn
		}
	}}.through(t, srv.Addr(), Config{RequestTimeout: patience})
	other := opened(t, at(srv.Addr()))
	holder, next := claim(key(t)), inLine("")
	next.Key = holder.Key
	acquired(t, other, holder)
	wake, err := b.Watch(t.Context(), next)
	want(t, "Watch", err, nil)
	enqueued(t, b, next, 1)
	lc := known(b, next)
	stall.Store(true)
	want(t, "Release", storetest.Release(t.Context(), other, holder), nil)
	<-reached
	b.mu.Lock()
	if !b.waiting(lc, *lc.entry, time.Now()) { // what an answered heartbeat does last
		t.Error("it does not wait")
	}
	b.mu.Unlock()
	close(goOn)
	if w := <-wake; w.Granted {
		t.Errorf("%+v was handed over, and counts from a request that the lease does not", w.Grant)
	}
	acquired(t, b, next)
}
