package rueidisbackend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Replicas are asked for what the script has just written: one that is connected and has stopped
// has the writes before, on whatever connection those went, and not this one.
//
// covers: R1, R2
func TestReplicasHaveTheScriptsWrite(t *testing.T) {
	t.Parallel()
	soon := testserver.WithArgs("--repl-diskless-sync-delay", "0")
	primary, replica := testserver.Redis(t, soon), testserver.Redis(t, soon)
	replica.MustDo("REPLICAOF", "127.0.0.1", fmt.Sprint(primary.Port()))
	b := opened(t, "rueidis://"+primary.Addr()+"?replicas=1")
	c := claim(key(t))
	eventually(t, "acquire with a replica", func() error {
		_, err := b.TryAcquire(t.Context(), c)
		return err
	})
	eventually(t, "renew with a replica", func() error { return b.Renew(t.Context(), c) })
	eventually(t, "the replica to say that it has everything", func() error {
		info := primary.MustDo("INFO", "replication")
		_, offset, _ := strings.Cut(info, "\r\nmaster_repl_offset:")
		offset, _, _ = strings.Cut(offset, "\r\n")
		if offset == "" || !strings.Contains(info, ",state=online,offset="+offset+",") {
			return errors.New(info)
		}
		return nil
	})

	replica.Stop()
	unknown := func(what string, err error) {
		t.Helper()
		if backend.AnswerOf(err) != backend.Unknown ||
			!strings.Contains(fmt.Sprint(err), "0 of 1 replicas") {
			t.Errorf("%s with a replica that has stopped: %v, want an unknown answer and why", what,
				err)
		}
	}
	unknown("renew", b.Renew(t.Context(), c))
	other := claim(key(t))
	_, err := b.TryAcquire(t.Context(), other)
	unknown("acquire", err)
	if !strings.Contains(primary.MustDo("INFO", "replication"), "connected_slaves:1") {
		t.Error("the replica is not connected any more, so this shows nothing")
	}
	want(t, "release", storetest.Release(t.Context(), b, other), nil)
	want(t, "release", storetest.Release(t.Context(), b, c), nil)
}

// A look that found no server has seen nothing of the key: it is repeated until the server is back,
// which tells of the next release then, to one that waits and to one that holds.
//
// covers: W2, W3
func TestLookThatFoundNoServer(t *testing.T) {
	srv := testserver.SharedRedis(t)
	for name, holds := range map[string]bool{"waits": false, "holds": true} {
		t.Run(name, func(t *testing.T) { lookedInVain(t, srv, holds) })
	}
}

func lookedInVain(t *testing.T, srv *testserver.Server, holds bool) {
	p := testserver.NewProxy(t, srv.Addr())
	var refused atomic.Int64
	b, err := New(rueidis.ClientOption{
		InitAddress: []string{p.Addr()}, ForceSingleClient: true,
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer,
			_ *tls.Config,
		) (net.Conn, error) {
			c, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				refused.Add(1)
			}
			return c, err
		},
	}, Config{})
	want(t, "new", err, nil)
	defer func() { want(t, "close", b.Close(), nil) }()
	other := opened(t, "rueidis://"+srv.Addr())
	holder := claim(key(t))
	acquired(t, other, holder)
	watcher := holder
	if !holds {
		watcher = claim(holder.Key)
	}
	wake := watched(t.Context(), t, b, watcher)

	p.Set(testserver.Fault{Mode: testserver.Refuse})
	p.CutAll()
	if !holds {
		woken(t, wake) // as something may have been missed
	}
	eventually(t, "a look to be refused", func() error {
		if refused.Load() == 0 {
			return errors.New("no connection was tried")
		}
		return nil
	})
	lock, read := testserver.Containing(b.store.Layout.Key(holder.Key)), make(chan struct{}, 1)
	p.Set(testserver.Fault{Match: func(request []byte) bool { // which passes
		hit := lock(request)
		if hit {
			select {
			case read <- struct{}{}:
			default:
			}
		}
		return hit
	}})
	select {
	case <-read:
	case <-time.After(patience):
		t.Fatal("the server is back, and the key was not read again: nobody will be told " +
			"of its release")
	}
	silent(t, "woken again, though nothing has happened to the hold", wake)
	want(t, "release", storetest.Release(t.Context(), other, holder), nil)
	woken(t, wake)
}
