package pgbackend

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A connection that listens and breaks is made again, and nothing that was told meanwhile is
// missed.
//
// covers: W13
func TestListenerBreaks(t *testing.T) {
	url := server(t).URL()
	b, other, p := opened(t, url), opened(t, url), pool(t, url)
	for range 5 {
		key := storetest.Key(t)
		holder, next := claim(key), claim(key)
		next.Queue, next.WaiterTTL = true, time.Minute
		acquired(t, b, holder)
		_, err := other.TryAcquire(t.Context(), next)
		want(t, "TryAcquire", err, backend.ErrHeld)
		wake, err := other.Watch(t.Context(), next)
		want(t, "Watch", err, nil)
		// The one before may not be back yet.
		storetest.Eventually(t, "a connection that listens to be killed", func() error {
			var killed int
			err := p.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid))
				FROM pg_stat_activity WHERE pid <> pg_backend_pid()
				AND (query LIKE 'LISTEN%' OR query = '-- ping')`).Scan(&killed)
			if err == nil && killed == 0 {
				err = errors.New("there is none")
			}
			return err
		})
		want(t, "Release", storetest.Release(t.Context(), b, holder), nil)
		storetest.Woken(t, wake)
		storetest.Eventually(t, "a connection that listens", func() error {
			ctx := storetest.Quick(t, patience)
			conn, err := other.store.listen(ctx)
			if err == nil {
				hangUp(conn)
			}
			return err
		})
	}
}

// When a connection that listens is there again, all that is watched is looked at: whatever was
// told meanwhile was not heard, and the slow look that is always there may be seconds away.
//
// covers: W13
func TestListenerIsBack(t *testing.T) {
	url := server(t).URL()
	s, p := opened(t, url).store, pool(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := s.listen(ctx)
	want(t, "listen", err, nil)
	told, ended := make(chan string), make(chan struct{})
	go func() {
		defer close(ended)
		s.follow(ctx, conn, func(key string) {
			select {
			case told <- key:
			case <-ctx.Done():
			}
		})
	}()
	_, err = p.Exec(t.Context(), "SELECT pg_terminate_backend($1)", conn.PgConn().PID())
	want(t, "pg_terminate_backend", err, nil)
	select {
	case key := <-told:
		if key != "" {
			t.Errorf("told that %q changed, want that any key may have", key)
		}
	case <-time.After(patience):
		t.Error("told of nothing")
	}
	cancel()
	<-ended
}
