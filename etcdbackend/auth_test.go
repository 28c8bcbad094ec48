package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// The refusals of a member that does not know a token.
var forNowRefusals = map[string]error{
	"invalid token": rpctypes.ErrGRPCInvalidAuthToken,
	"old revision":  rpctypes.ErrGRPCAuthOldRevision,
}

// as returns addresses of a cluster as a URL, with its user.
func as(set *testserver.EtcdSet) string {
	return "etcd://" + set.Userinfo() + strings.Join(set.Addrs(), ",")
}

// kindOf names a request as those are counted that are refused.
func kindOf(req any) string {
	switch req.(type) {
	case *etcdserverpb.TxnRequest:
		return "Txn"
	case *etcdserverpb.RangeRequest:
		return "Range"
	case *etcdserverpb.LeaseGrantRequest:
		return "LeaseGrant"
	case *etcdserverpb.LeaseKeepAliveRequest:
		return "LeaseKeepAlive"
	}
	return ""
}

// A member that does not know a token yet did not do what it was asked for. It is asked again,
// whatever the request was, and nobody is told.
//
// covers: B2
func TestTokenNotKnownYet(t *testing.T) {
	srv := testserver.Etcd(t)
	for name, refusal := range forNowRefusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const times = 3
			var mu sync.Mutex
			left, refused := map[string]int{}, map[string]int{}
			b, _ := tap{refuse: func(req any) error {
				mu.Lock()
				defer mu.Unlock()
				kind := kindOf(req)
				if left[kind] == 0 {
					return nil
				}
				left[kind]--
				refused[kind]++
				return refusal
			}}.through(t, srv.Addr(), Config{RequestTimeout: patience})
			refuse := func() {
				mu.Lock()
				defer mu.Unlock()
				left = map[string]int{
					"Txn": times, "Range": times, "LeaseGrant": times,
					"LeaseKeepAlive": times,
				}
			}
			c := claim(key(t))
			c.TTL = slackFrom - time.Second // no slack: each renewal needs a keepalive
			refuse()
			acquired(t, b, c)
			refuse()
			want(t, "Renew", b.Renew(t.Context(), c), nil)
			refuse()
			_, err := b.Inspect(t.Context(), c.Key)
			want(t, "Inspect", err, nil)
			want(t, "Release", storetest.Release(t.Context(), b, c), nil)
			mu.Lock()
			defer mu.Unlock()
			for _, kind := range []string{"Txn", "Range", "LeaseGrant", "LeaseKeepAlive"} {
				if refused[kind] < times {
					t.Errorf("%d requests %s were refused, want %d and more", refused[kind], kind,
						times)
				}
			}
		})
	}
}

// Where the time of a request runs out meanwhile, each verb says that certainly nothing was done,
// and that asking later may help.
//
// covers: B2
func TestTokenNeverKnown(t *testing.T) {
	srv := testserver.Etcd(t)
	for name, refusal := range forNowRefusals {
		for _, kind := range []string{"Txn", "Range", "LeaseGrant", "LeaseKeepAlive"} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				t.Parallel()
				var never atomic.Bool
				b, _ := tap{refuse: func(req any) error {
					if never.Load() && kindOf(req) == kind {
						return refusal
					}
					return nil
				}}.through(t, srv.Addr(), Config{RequestTimeout: 2 * time.Second})
				c := claim(key(t))
				c.TTL = slackFrom - time.Second
				verb := func() error {
					_, err := b.TryAcquire(t.Context(), c)
					return err
				}
				if kind == "Range" || kind == "LeaseKeepAlive" {
					eventually(t, "a hold", verb)
					verb = func() error { return b.Renew(t.Context(), c) }
				}
				never.Store(true)
				err := verb()
				for end := time.Now().Add(patience); backend.AnswerOf(err) == backend.Unknown &&
					time.Now().Before(end); {
					err = verb() // a machine that stands still gives no answer
				}
				want(t, "a verb", err, backend.ErrUnavailable)
				if backend.Refused(err) ||
					!strings.Contains(err.Error(), rpctypes.ErrorDesc(refusal)) {
					t.Errorf("the error is %v", err)
				}
				never.Store(false)
				eventually(t, "the verb later", verb)
			})
		}
	}
}

// A refusal after a copy of the request that was not answered says nothing of that copy, and one
// before it neither.
//
// covers: X15
func TestTokenNotKnownAfterACopy(t *testing.T) {
	var asked atomic.Int64
	_, resent, err := resending(quick(t, 400*time.Millisecond), 100*time.Millisecond,
		func(ctx context.Context) (int, error) {
			if asked.Add(1) == 1 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 0, rpctypes.ErrInvalidAuthToken
		})
	if err = (&Backend{}).failure(err); !resent || backend.AnswerOf(err) != backend.Unknown ||
		asked.Load() < 3 {
		t.Errorf("resent %v, after %d requests: %v", resent, asked.Load(), err)
	}
	asked.Store(0)
	_, _, err = resending(quick(t, 400*time.Millisecond), time.Minute,
		func(ctx context.Context) (int, error) {
			if asked.Add(1) == 1 {
				return 0, rpctypes.ErrInvalidAuthToken
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
	if err = (&Backend{}).failure(err); backend.AnswerOf(err) != backend.Unknown ||
		asked.Load() != 2 {
		t.Errorf("refused, and then not answered: %v after %d requests", err, asked.Load())
	}
	asked.Store(0)
	_, resent, err = resending(quick(t, 400*time.Millisecond), 100*time.Millisecond,
		func(ctx context.Context) (int, error) {
			//nolint:forcetypeassert // it is one
			ctx.Value(heard{}).(*heard).answer = rpctypes.ErrInvalidAuthToken
			asked.Add(1)
			<-ctx.Done() // in the client, which waits before it asks again
			return 0, ctx.Err()
		})
	if err = (&Backend{}).failure(err); resent || !errors.Is(err, backend.ErrUnavailable) ||
		asked.Load() < 2 {
		t.Errorf("of a client that asks again by itself: resent %v, after %d requests: %v", resent,
			asked.Load(), err)
	}
}

// The same of a client that is opened by URL, which makes its requests again by itself. An error of
// which nothing is known but that the user is none is final.
func TestOpenWithATokenThatNobodyKnows(t *testing.T) {
	for name, of := range map[string]struct{ says, want error }{
		"for now":        {rpctypes.ErrGRPCInvalidAuthToken, backend.ErrUnavailable},
		"for good":       {rpctypes.ErrGRPCPermissionDenied, backend.ErrDenied},
		"without a user": {rpctypes.ErrGRPCUserEmpty, backend.ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			want(t, "listen", err, nil)
			store := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
				return of.says
			}))
			go func() { _ = store.Serve(listener) }()
			t.Cleanup(store.Stop)
			addr := listener.Addr().String()
			// With one member and several it is sent again at other times.
			for _, addrs := range []string{addr, addr + "," + addr} {
				_, err = backend.Open(t.Context(), "etcd://"+addrs+"?request_timeout=1s")
				want(t, "Open", err, of.want)
				if !strings.Contains(err.Error(), rpctypes.ErrorDesc(of.says)) {
					t.Errorf("Open of %s = %v", addrs, err)
				}
			}
		})
	}
}

// While a store refuses for now, a leader keeps its office for as long as its lease lasts, and then
// campaigns until it is elected again.
//
// covers: B2
func TestLeadWhileNoTokenIsKnown(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	var never atomic.Bool
	var refused atomic.Int64
	b, _ := tap{refuse: func(req any) error {
		if never.Load() && kindOf(req) != "" {
			refused.Add(1)
			return rpctypes.ErrGRPCInvalidAuthToken
		}
		return nil
	}}.through(t, srv.Addr(), Config{RequestTimeout: 300 * time.Millisecond})
	cfg := patient
	cfg.TTL, cfg.StoreTimeout = 1500*time.Millisecond, 500*time.Millisecond
	l, err := locker.New(b, locker.Bare, cfg)
	want(t, "locker", err, nil)
	defer l.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	elected, deposed, ended := make(chan bool), make(chan error), make(chan error, 1)
	go func() {
		ended <- locker.Lead(ctx, l, key(t), func(ctx context.Context, _ struct{}) error {
			select {
			case elected <- true:
			case <-ctx.Done():
				return nil
			}
			<-ctx.Done()
			deposed <- context.Cause(ctx)
			return nil
		})
	}()
	next := func(what string, happened <-chan bool) {
		t.Helper()
		select {
		case <-happened:
		case err := <-ended:
			t.Fatalf("Lead returned %v instead of: %s", err, what)
		case <-time.After(3 * patience):
			t.Fatalf("not in time: %s", what)
		}
	}
	next("elected", elected)
	never.Store(true)
	select {
	case err := <-deposed:
		want(t, "the cause", err, locker.ErrLost)
	case err := <-ended:
		t.Fatalf("Lead returned %v", err)
	}
	before := refused.Load()
	eventually(t, "campaigns that are refused", func() error {
		select {
		case err := <-ended:
			t.Fatalf("Lead returned %v", err)
		default:
		}
		if n := refused.Load() - before; n < 20 {
			return fmt.Errorf("%d requests were refused", n)
		}
		return nil
	})
	never.Store(false)
	next("elected again", elected)
	stop()
	want(t, "the cause", <-deposed, context.Canceled)
	want(t, "Lead", <-ended, context.Canceled)
}

// A watch outlives the token that its stream was opened with. Those that are made later are
// confirmed all the same.
//
// covers: X8
func TestWatchAfterATokensEnd(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t, testserver.WithEtcdAuth("simple"),
		testserver.WithArgs("--auth-token-ttl", "1"))
	b := opened(t, "etcd://"+srv.Userinfo()+srv.Addr()+"?request_timeout="+patience.String())
	first, second := claim(key(t)), claim(key(t))
	_, err := b.Watch(t.Context(), first)
	want(t, "Watch", err, nil)
	time.Sleep(3 * time.Second) // in which nobody uses the token
	wake, err := b.Watch(t.Context(), second)
	want(t, "Watch after the token's end", err, nil)
	acquired(t, b, second)
	want(t, "Release", storetest.Release(t.Context(), b, second), nil)
	select {
	case <-wake:
	case <-time.After(patience):
		t.Error("not woken")
	}
}

// Simple tokens are forgotten after five seconds without use, and by a member that is restarted,
// and members that have much to do learn of new ones late. None of it is the end of a Lock, of a
// hold, or of a candidate.
//
// covers: B2
func TestSimpleTokens(t *testing.T) {
	testserver.OnlyInAll(t, "three members that forget tokens")
	if testing.Short() {
		t.Skip("holds that outlive a token")
	}
	t.Parallel()
	const holds, firsts, workers, tokenTTL = 20, 500, 25, 5 * time.Second
	set := testserver.EtcdCluster(t, 3, testserver.WithEtcdAuth("simple"),
		testserver.WithArgs("--auth-token-ttl", fmt.Sprint(int(tokenTTL/time.Second))))
	raw := as(set)
	ctx, resign := context.WithCancel(t.Context())
	var campaigns sync.WaitGroup
	office, elected := key(t), make(chan struct{}, 1)
	for _, l := range lockers(t, patient, raw, raw) {
		campaigns.Go(func() {
			err := locker.Lead(ctx, l, office, func(ctx context.Context, _ struct{}) error {
				select {
				case elected <- struct{}{}:
				default:
				}
				<-ctx.Done()
				return nil
			})
			if ctx.Err() == nil {
				t.Errorf("Lead returned %v", err)
			}
		})
	}
	<-elected
	var guards []*locker.Guard[struct{}]
	for range holds {
		guards = append(guards, locked(t, lockers(t, patient, raw)[0], key(t)))
	}
	began := time.Now()
	// Contended: whoever waits keeps its place by keepalives.
	names := []string{key(t), key(t), key(t)}
	var left atomic.Int64
	left.Store(firsts)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				if err := firstLock(t, raw, names[n%3]); err != nil {
					t.Errorf("a client's first Lock: %v", err)
				}
			}
		})
	}
	all.Wait()
	_, follower := set.Leader(t)
	follower.Restart()
	time.Sleep(time.Until(began.Add(tokenTTL + tokenTTL/2)))
	for _, g := range guards {
		if err := g.Unlock(); backend.Refused(err) {
			t.Errorf("Unlock = %v", err)
		}
	}
	resign()
	campaigns.Wait()
}

// firstLock makes a client, whose first Lock it is, and closes it.
func firstLock(t *testing.T, raw, name string) error {
	b, err := backend.Open(t.Context(), raw)
	if err != nil {
		return err
	}
	defer b.Close()
	cfg := patient
	cfg.StoreTimeout = time.Minute
	l, err := locker.New(b, locker.Bare, cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	g, err := l.Lock(t.Context(), name)
	if err != nil {
		return err
	}
	if err := g.Unlock(); backend.Refused(err) {
		return err
	}
	return nil
}
