package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/locker"
)

// A bench measures pairs of Lock and Unlock.
type bench struct {
	common
	each    time.Duration
	clients int
}

func newBench() *cobra.Command {
	b := bench{common: common{alone: true}}
	cmd := &cobra.Command{
		Use:   "bench [URL]",
		Short: "Measure how fast locks are on a store, beside the least that they can cost",
		Long: `Takes and frees locks for --duration, first one client a key of its own, then
--clients clients one key, and prints how many pairs of Lock and Unlock there were in a second, and
how long a pair took, waiting included, in the middle and at the 99th percentile. Beside it stands
the least that any lock on the same store does: on Redis SET NX PX and a script that compares and
deletes, on etcd two transactions. With several clients those poll each 1 to 5 ms, and nobody is
served in order.

All clients are in this process and share its connections; each waits in the store's queue as
another machine would. A store that is in use is slowed down meanwhile. The keys, named
holdfast-bench-..., are removed, or run out within a minute. One run on a busy machine says little:
docs/benchmarks.md has measured more carefully.

` + exitHelp,
		Example: "  holdfast bench redis://localhost:6379\n" +
			"  holdfast bench etcd://localhost:2379 --clients 32 --duration 5s -o json",
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if b.each < 10*time.Millisecond || b.each > time.Minute {
				return usage("--duration %v is not between 10ms and 1m", b.each)
			}
			if b.clients < 2 || b.clients > 1000 {
				return usage("--clients %d is not between 2 and 1000", b.clients)
			}
			if _, err := b.loadStore(args); err != nil {
				return err
			}
			return b.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	b.flags(cmd)
	cmd.Flags().DurationVar(&b.each, "duration", time.Second,
		"how long each of the four measurements takes")
	cmd.Flags().IntVar(&b.clients, "clients", 8, "how many contend for one key")
	cmd.ValidArgsFunction = completeSchemes
	return cmd
}

// A figure is one line of the result.
type figure struct {
	Store   string  `json:"store"`
	Load    string  `json:"load"` // uncontended, contended
	Lock    string  `json:"lock"` // holdfast, or what stands beside it
	Clients int     `json:"clients"`
	Rate    float64 `json:"pairs_per_s"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

func (b *bench) run(ctx context.Context, w io.Writer) (err error) {
	c, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	low, err := newBare(c)
	if err != nil {
		return err
	}
	defer low.close()
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if b.output == "text" {
		fmt.Fprintf(w, "%s, %v each\n", c.where, b.each)
		fmt.Fprintln(t, "load\tclients\tlock\tpairs/s\tp50\tp99\t")
	}
	for _, load := range []struct {
		name    string
		clients int
	}{{"uncontended", 1}, {"contended", b.clients}} {
		for _, lock := range []struct {
			name    string
			measure func() (took []time.Duration, elapsed time.Duration, err error)
		}{
			{"holdfast", func() ([]time.Duration, time.Duration, error) {
				return c.measure(ctx, load.clients, b.each, low)
			}},
			{low.name, func() ([]time.Duration, time.Duration, error) {
				return low.measure(ctx, load.clients, b.each)
			}},
		} {
			if lock.name == "" {
				continue
			}
			took, elapsed, err := lock.measure()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return c.failure(err)
			}
			slices.Sort(took)
			f := figure{
				c.where, load.name, lock.name, load.clients, float64(len(took)) / elapsed.Seconds(),
				us(took[len(took)/2]), us(took[len(took)*99/100]),
			}
			if b.output == "json" {
				if err := printJSON(w, f); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%.0f\t%.0fµs\t%.0fµs\t\n",
				f.Load, f.Clients, f.Lock, f.Rate, f.P50, f.P99)
		}
	}
	return t.Flush()
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// measure has clients make pairs for some time, after one each that does not count, and returns how
// long each pair took. pair may fail once ctx has ended.
func measure(
	ctx context.Context, clients int, each time.Duration,
	pair func(ctx context.Context, client int) error,
) (took []time.Duration, elapsed time.Duration, err error) {
	var mu sync.Mutex // guards took and err
	for i := range clients {
		if err := pair(ctx, i); err != nil {
			return nil, 0, err
		}
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	var working sync.WaitGroup
	for i := range clients {
		working.Go(func() {
			var mine []time.Duration
			var failed error
			for failed == nil && ctx.Err() == nil {
				at := time.Now()
				if failed = pair(ctx, i); failed == nil {
					mine = append(mine, time.Since(at))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, mine...); ctx.Err() == nil {
				err = failed
				cancel()
			}
		})
	}
	working.Wait()
	if err == nil && len(took) == 0 {
		err = fmt.Errorf("no lock was taken and freed within %v; give a longer --duration", each)
	}
	return took, time.Since(began), err
}

// measure measures this client, or several lockers of its own on the same connections: goroutines
// of one locker would hand the lock on among themselves. By low it removes what Redis keeps of a
// key for some seconds after its last hold.
func (c *client) measure(ctx context.Context, clients int, each time.Duration,
	low *bare,
) ([]time.Duration, time.Duration, error) {
	lockers := make([]*locker.Client[struct{}], 0, clients)
	defer func() {
		for _, l := range lockers {
			_ = l.Close()
		}
	}()
	for range clients {
		l, err := locker.New(c.backend, locker.Bare, c.config)
		if err != nil {
			return nil, 0, err
		}
		lockers = append(lockers, l)
	}
	key := benchKey()
	if of, ok := c.backend.(interface{ LockKey(key string) string }); ok && low.remove != nil {
		defer low.remove(of.LockKey(backend.Namespaced(c.config.Namespace, key)))
	}
	return measure(ctx, clients, each, func(ctx context.Context, i int) error {
		g, err := lockers[i].Lock(ctx, key)
		if err != nil {
			return err
		}
		return g.Unlock()
	})
}

func benchKey() string { return "holdfast-bench-" + backend.NewOwner() }

// A bare is the least that a lock on a store does.
type bare struct {
	name   string // empty if there is none to stand beside holdfast
	prefix string
	take   func(ctx context.Context, key, owner string) (bool, error)
	free   func(ctx context.Context, key, owner string) error
	remove func(key string)
	close  func()
}

const (
	bareTTL     = 30 * time.Second
	bareTimeout = 5 * time.Second
	bareDelete  = `if redis.call('GET', KEYS[1]) == ARGV[1] then ` +
		`return redis.call('DEL', KEYS[1]) end return 0`
)

func (b *bare) measure(ctx context.Context, clients int,
	each time.Duration,
) ([]time.Duration, time.Duration, error) {
	key := b.prefix + benchKey()
	defer b.remove(key)
	return measure(ctx, clients, each, func(ctx context.Context, _ int) error {
		owner := backend.NewOwner()
		for {
			// One that is cancelled may be executed after the key was removed, and be there
			// for ever.
			whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), bareTimeout)
			taken, err := b.take(whole, key, owner)
			if taken {
				err = b.free(whole, key, owner)
			}
			cancel()
			if err != nil || taken {
				return err
			}
			select {
			case <-time.After(time.Millisecond + rand.N(4*time.Millisecond)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// newBare connects to the store of c by its plain client.
func newBare(c *client) (*bare, error) {
	u, err := backend.ParseURL(c.url.Reveal())
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"redis", "rueidis"} {
		if !strings.HasPrefix(u.Scheme, name) {
			continue
		}
		ignore := func(string) error { return nil }
		t, err := store.ParseURL(u, name,
			store.Settings{"pool_size": ignore, "held_answers": ignore})
		if err != nil {
			return nil, err
		}
		return bareRedis(t), nil
	}
	switch u.Scheme {
	case "etcd":
		return bareEtcd(strings.Split(u.Host, ","), u.User)
	case "etcd+unix":
		return bareEtcd([]string{"unix://" + u.Path}, u.User)
	}
	return &bare{close: func() {}}, nil
}

func bareRedis(t store.Target) *bare {
	c := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: t.Addrs, DB: t.DB, Username: t.User, Password: t.Password, TLSConfig: t.TLS,
		IsClusterMode: t.Topology == store.Cluster, MasterName: t.Master,
		SentinelUsername: t.SentinelUser, SentinelPassword: t.SentinelPassword,
		MaxRetries: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	compareAndDelete := redis.NewScript(bareDelete)
	return &bare{
		name: "SET NX", prefix: cmp.Or(t.Config.Prefix, script.DefaultPrefix),
		take: func(ctx context.Context, key, owner string) (bool, error) {
			err := c.SetArgs(ctx, key, owner, redis.SetArgs{Mode: "NX", TTL: bareTTL}).Err()
			if errors.Is(err, redis.Nil) {
				return false, nil
			}
			return err == nil, err
		},
		free: func(ctx context.Context, key, owner string) error {
			return compareAndDelete.Run(ctx, c, []string{key}, owner).Err()
		},
		remove: func(key string) { _ = c.Del(context.Background(), key).Err() },
		close:  func() { _ = c.Close() },
	}
}

func bareEtcd(endpoints []string, user *url.Userinfo) (*bare, error) {
	password, _ := user.Password()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Username: user.Username(), Password: password,
		DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	return &bare{
		name: "bare txn", prefix: "holdfast/",
		take: func(ctx context.Context, key, owner string) (bool, error) {
			free := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
			r, err := c.Txn(ctx).If(free).Then(clientv3.OpPut(key, owner)).Commit()
			return err == nil && r.Succeeded, err
		},
		free: func(ctx context.Context, key, owner string) error {
			own := clientv3.Compare(clientv3.Value(key), "=", owner)
			_, err := c.Txn(ctx).If(own).Then(clientv3.OpDelete(key)).Commit()
			return err
		},
		remove: func(key string) { _, _ = c.Delete(context.Background(), key) },
		close:  func() { _ = c.Close() },
	}, nil
}
