package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Many requests on few connections are all answered, each with its own answer, also right after
// SCRIPT FLUSH.
func TestPipelineAnswersAll(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL()+"?pool_size=2")
	redistest.Crowd(t, srv, b)
	eventually(t, "all senders to be done", func() error {
		b.pipe.mu.Lock()
		defer b.pipe.mu.Unlock()
		if b.pipe.busy != 0 || len(b.pipe.queue) != 0 {
			return fmt.Errorf("%d senders, %d requests wait", b.pipe.busy, len(b.pipe.queue))
		}
		return nil
	})
}

// While all connections are occupied, who waits for one leaves when its context ends; what it
// asked for is not sent, which is a definite answer. The others go together, as soon as a
// connection is free.
//
// covers: E2, A11
func TestPipelineWaits(t *testing.T) {
	p, b, direct := behind(t, "?pool_size=1")
	c := claim(key(t))
	acquired(t, b, c)
	p.Set(testserver.Fault{Mode: testserver.HoldReply, Match: testserver.Containing(c.Key)})
	first := make(chan error, 1)
	go func() { first <- b.Renew(t.Context(), c) }()
	p.Await(func(n testserver.Counts) bool { return n.Held > 0 })

	gone := claim(key(t))
	_, err := b.TryAcquire(quick(t, 20*time.Millisecond), gone)
	want(t, "acquire without a connection", err, context.DeadlineExceeded)
	want(t, "acquire without a connection", err, backend.ErrUnavailable)
	cancelled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = b.TryAcquire(cancelled, claim(gone.Key))
	want(t, "acquire without a connection", err, context.Canceled)
	var waiting sync.WaitGroup
	for range 10 {
		waiting.Go(func() { acquired(t, b, claim(key(t))) })
	}
	eventually(t, "ten to wait", func() error {
		b.pipe.mu.Lock()
		defer b.pipe.mu.Unlock()
		if len(b.pipe.queue) != 10 {
			return errors.New("not yet")
		}
		return nil
	})
	p.Pass()
	waiting.Wait()
	want(t, "renew", <-first, nil)
	if s, err := direct.Inspect(t.Context(), gone.Key); err != nil || len(s.Holders) > 0 {
		t.Errorf("whoever left was granted: %+v, %v", s, err)
	}
}

// RequestTimeout counts from the call, not from when a connection was free.
//
// covers: E2
func TestPipelineTimesOut(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL()+"?pool_size=1&request_timeout=200ms")
	acquired(t, b, claim(key(t)))
	srv.Stop()
	start := time.Now()
	var crowd sync.WaitGroup
	for range 50 {
		crowd.Go(func() {
			if err := b.Renew(t.Context(), claim(key(t))); err == nil ||
				errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("renew: %v", err)
			}
		})
	}
	crowd.Wait()
	if took := time.Since(start); took > 8*time.Second { // one after the other they would take ten
		t.Errorf("it took %v", took)
	}
	srv.Cont()
	eventually(t, "acquire", func() error {
		_, err := b.TryAcquire(t.Context(), claim(key(t)))
		return err
	})
}

// Requests that are sent together are waited for until the last of their deadlines: that the time
// of one of them is over does not cut the others off.
//
// covers: E2
func TestBatchLastsForItsLastDeadline(t *testing.T) {
	b := opened(t, testserver.SharedRedis(t).URL())
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	long, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, last := attempt{redis.NewCmd(over, "PING")}, attempt{redis.NewCmd(long, "PING")}
	b.pipe.send([]*request{{ctx: over, cmd: first}, {ctx: long, cmd: last}})
	if answer, err := last.Text(); answer != "PONG" || err != nil {
		t.Errorf("the one that has time: %q, %v", answer, err)
	}
}

// A sender takes at most half of all requests that wait or are sent, or a few, in order; what needs
// a connection for itself goes alone, and so does everything in a cluster.
func TestPipelineTakesHalf(t *testing.T) {
	own := func(context.Context) {}
	for _, tt := range []struct {
		queue, sent, want int
		own               int // which request needs a connection for itself; -1: none
		alone, single     bool
	}{
		{queue: 0, sent: 5, want: 0, own: -1},
		{queue: 1, sent: 0, want: 1, own: -1},
		{queue: 16, sent: 0, want: 8, own: -1},
		{queue: 8, sent: 8, want: 8, own: -1},
		{queue: 2, sent: 0, want: 2, own: -1}, // a release, and the acquire behind it
		{queue: 8, sent: 4, want: 8, own: -1},
		{queue: 20, sent: 4, want: 12, own: -1},
		{queue: 3, sent: 100, want: 3, own: -1},
		{queue: 16, sent: 0, want: 3, own: 3},
		{queue: 16, sent: 0, want: 1, own: 0},
		{queue: 16, sent: 0, want: 1, own: -1, alone: true},
		{queue: 16, sent: 0, want: 16, own: -1, single: true}, // nobody else would take the rest
		{queue: 5000, sent: 0, want: maxBatch, own: -1},
		{queue: 5000, sent: 0, want: maxBatch, own: -1, single: true},
	} {
		p := &pipeline{sent: tt.sent, alone: tt.alone, most: 2}
		if tt.single {
			p.most = 1
		}
		for i := range tt.queue {
			p.queue = append(p.queue, &request{})
			if i == tt.own {
				p.queue[i].own = own
			}
		}
		all := p.queue
		batch := p.takeLocked()
		if len(batch) != tt.want || !slices.Equal(append(batch, p.queue...), all) ||
			p.sent != tt.sent+tt.want {
			t.Errorf("%+v: took %d, %d are sent", tt, len(batch), p.sent)
		}
	}
}

// A request that is alone, and that nobody can cancel, is sent from its caller's goroutine.
func TestLoneRequestStartsNoGoroutine(t *testing.T) {
	b := opened(t, testserver.SharedRedis(t).URL())
	c := claim(key(t))
	if _, err := b.TryAcquire(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	more := 0 // the runtime's count is a guess while a goroutine ends
	for range 100 {
		want(t, "renew", b.Renew(context.Background(), c), nil)
		if runtime.NumGoroutine() > before {
			more++
		}
	}
	if more > 10 {
		t.Errorf("after %d of 100 requests there was a goroutine more than before", more)
	}
}

// covers: E2, G5
func TestHungServer(t *testing.T) { redistest.HungServer(t, "redis", 500) }

// While a request to a cluster has no answer, the client looks again and again who the primaries
// are: the one that it was sent to may hang, and its replica may serve by now.
//
// covers: B1
func TestSilenceHasTheClusterLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looked []time.Duration
		began := time.Now()
		p := &pipeline{timeout: 3 * time.Second, most: 2, alone: true, silent: func() {
			looked = append(looked, time.Since(began))
		}}
		hangs := request{own: func(context.Context) { time.Sleep(time.Minute) }}
		if err := p.do(t.Context(), hangs); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if want := []time.Duration{
			time.Second,
			2 * time.Second,
		}; !slices.Equal(looked[:min(len(looked), 2)], want) {
			t.Errorf("looked after %v", looked)
		}
		if err := p.do(t.Context(), request{own: func(context.Context) {}}); err != nil {
			t.Error(err)
		}
		p.close()
	})
}

// A node that is asked who the primaries are, and hangs, is given up before a request would be,
// unless one waits for the answer.
//
// covers: B1
func TestTopologyIsAskedForWithinALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := topologyHook{time.Second}.ProcessHook(func(ctx context.Context,
			_ redis.Cmder,
		) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(3 * time.Second):
				return nil
			}
		})
		if err := waits(t.Context(), redis.NewClusterSlotsCmd(t.Context(), "cluster",
			"slots")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a node that hangs: %v", err)
		}
		if err := waits(t.Context(), redis.NewCmd(t.Context(), "evalsha")); err != nil {
			t.Errorf("a request of ours: %v", err)
		}
		opening, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := waits(opening,
			redis.NewClusterSlotsCmd(opening, "cluster", "slots")); err != nil {
			t.Errorf("the first time, which a request waits for: %v", err)
		}
	})
}

// answering is a client of no server, whose commands are answered by a function, those sent
// together too.
type answering struct{ answer func(cmd redis.Cmder) }

func (a answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { a.answer(cmd); return cmd.Err() }
}

func (a answering) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			a.answer(cmd)
		}
		return nil
	}
}

func answered(t *testing.T, answer func(cmd redis.Cmder)) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = c.Close() })
	c.AddHook(answering{answer})
	return c
}

// What comes while the only connection has a lone request is sent as soon as that is answered, and
// not when somebody else comes.
//
// covers: E2
func TestNextAfterALoneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		client := answered(t, func(redis.Cmder) { <-goOn })
		p := &pipeline{client: client, timeout: time.Minute, most: 1, inline: true}
		alone := make(chan error, 1)
		go func() {
			alone <- p.do(context.Background(),
				request{cmd: attempt{redis.NewCmd(context.Background(), "first")}})
		}()
		synctest.Wait()
		began := time.Now()
		next := make(chan error, 1)
		go func() { next <- p.do(t.Context(), request{own: func(context.Context) {}}) }()
		synctest.Wait()
		if len(p.queue) != 1 {
			t.Fatalf("%d requests wait: this shows nothing", len(p.queue))
		}
		close(goOn)
		want(t, "the lone request", <-alone, nil)
		want(t, "the next", <-next, nil)
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the next waited for %v at an idle client", waited)
		}
		p.close()
	})
}

// A server that does not know the script is sent it, and then the replicas are counted by the WAIT
// behind that:
// the one before has told of what was written earlier.
//
// covers: R2
func TestReplicasAreCountedAfterTheGrant(t *testing.T) {
	var waits []int64
	client := answered(t, func(cmd redis.Cmder) {
		c, _ := cmd.(attempt)
		switch c.Name() {
		case "evalsha":
			c.SetErr(serverError("NOSCRIPT No matching script"))
		case "eval":
			c.SetVal("granted")
		case "wait":
			c.SetVal(waits[0])
			waits = waits[1:]
		}
	})
	b := &Backend{cfg: store.Config{RequestTimeout: time.Minute}, client: client}
	b.pipe = &pipeline{client: client, timeout: time.Minute, most: 1}
	defer b.pipe.close()
	s, err := store.New(&b.cfg, "redis")
	if err != nil {
		t.Fatal(err)
	}
	r := store.Request{Request: s.Layout.Acquire(claim("k")), Replicas: 1}
	for before, after := range []int64{1, 0} {
		waits = []int64{int64(before), after}
		reply, replicas, err := transport{b}.acknowledged(t.Context(), r)
		if err != nil || reply != "granted" || replicas != int(after) {
			t.Errorf("%v, %d replicas, %v, want %d", reply, replicas, err, after)
		}
	}
}
