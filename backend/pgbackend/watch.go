package pgbackend

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// channel is where changes are told, with the key in hexadecimal: 2 KB at most. All tables of a
// database share it.
const channel = "holdfast"

const (
	// Less than record gives a subscription, so that the caller hears why there is none.
	listenTimeout = 3 * time.Second
	// After which a connection that listens is asked whether it lives.
	silence = 10 * time.Second
)

// watch is a [record.Config]'s.
func (s *store) watch(ctx context.Context, changed func(key string)) error {
	conn, err := s.listen(ctx)
	if err != nil {
		return err
	}
	s.tasks.Go(func() { s.follow(ctx, conn, changed) })
	return nil
}

// listen returns a connection that listens, which has been tried: it has heard what another one
// told.
func (s *store) listen(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, notSent(err)
	}
	conn := pooled.Hijack() // the pool makes another one
	if err := s.try(ctx, conn); err != nil {
		hangUp(conn)
		return nil, notSent(err)
	}
	return conn, nil
}

func (s *store) try(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	test := "test " + rand.Text()
	if _, err := s.pool.Exec(ctx, "SELECT pg_notify($1, $2)", channel, test); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("%w: a notice did not arrive: is there a pooler in between? Then "+
				"open with poll=250ms: %w", backend.ErrUnavailable, err)
		}
		if n.Payload == test {
			return nil
		}
	}
}

// follow passes on what conn hears, and makes another one when it breaks, until ctx is done.
func (s *store) follow(ctx context.Context, conn *pgx.Conn, changed func(key string)) {
	defer func() { hangUp(conn) }()
	backoff := waiting.NewBackoff(10*time.Millisecond, 5*time.Second)
	for {
		n, err := next(ctx, conn)
		if err == nil {
			if key, err := hex.DecodeString(n.Payload); err == nil && len(key) > 0 {
				changed(string(key))
			}
			continue
		}
		for err != nil {
			hangUp(conn)
			if !waiting.Pause(ctx, backoff.Next()) {
				return
			}
			var again *pgx.Conn
			if again, err = s.listen(ctx); err == nil {
				conn = again
			}
		}
		backoff.Reset()
		changed("") // whatever was told meanwhile was not heard; safeguard: pg-missed
	}
}

// next waits for a notice. A connection that is silent for long has to answer.
func next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	for {
		waits, cancel := context.WithTimeout(ctx, silence)
		n, err := conn.WaitForNotification(waits)
		silent := waits.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !silent {
			return n, err
		}
		asks, cancel := context.WithTimeout(ctx, listenTimeout)
		err = conn.Ping(asks)
		cancel()
		if err != nil {
			return nil, err
		}
	}
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
