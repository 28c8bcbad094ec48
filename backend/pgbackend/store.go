package pgbackend

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/waiting"
)

// skew is how far two times that verbs are given may be apart: each is within half of it of the
// server's clock.
const skew = 50 * time.Millisecond

// A store is a table with a row for each key. It is a [record.Store].
type store struct {
	pool  *pgxpool.Pool
	owned bool // the pool is ours to close
	poll  bool // nobody listens
	table string
	sql   statements
	tasks sync.WaitGroup // that listen

	mu     sync.Mutex
	turns  map[string]chan struct{} // by key: closed when whoever changes it has done so
	clock  reading
	last   map[string]remembered // by key: what this client wrote last, and lately
	sweep  *time.Timer           // runs while there is something in last
	closed bool
}

// A row is what somebody saw of a key.
type row struct {
	value   []byte         // nil if there is no row
	record  *record.Record // of value; empty if that cannot be read
	version string         // PostgreSQL's xmin: which transaction wrote this version of the row
	time    time.Time      // if there is no row, what the server's clock is going to show, by guess
	guessed bool           // it is what this client believes, and nobody has asked the server
}

// statements are those of one table. PostgreSQL prepares each once a connection.
type statements struct{ read, touch, insert, update, remove, sweep, keys string }

// statementsOn returns those of a table, whose name has been validated.
//
// A swap gets the key, the version that it is to replace, what it may not do while others keep it
// from it ([locksOf]), the time if it was guessed, the value, and the old value if that was: a
// standby that takes over without the last commits gives others their numbers. It answers with the
// version that it wrote. If it wrote nothing, it answers with whether it was kept from it, and with
// the row that is there.
//
// A touch reads a row, and makes the version of it a new one: whatever others are about to write
// over the old one misses, and they have to ask before they can write again, so whoever has touched
// it writes first. It is for a client that others are ahead of: one that has written a row may
// write it again after one round trip, for ever, and one that has to read it needs two. Where there
// is no row it makes an empty one, for a client that is too slow to insert one in time.
func statementsOn(table string) statements {
	// Half of what two clients may be apart. safeguard: pg-half
	within := fmt.Sprint((skew / 2).Seconds())
	// safeguard: pg-believed
	const same = ` AND t.value = coalesce($6::bytea, t.value)`
	swap := func(write string) string {
		return `WITH may AS MATERIALIZED (
				SELECT coalesce((
						SELECT bool_and(pg_try_advisory_xact_lock(h))
						FROM unnest($3::bigint[]) AS h
					), true) AS free,
					coalesce(abs(extract(epoch FROM clock_timestamp() - $4::timestamptz))
						<= ` + within + `, true) AS timely
			), done AS (` + write + ` RETURNING xmin::text AS version
			), told AS MATERIALIZED (
				SELECT pg_notify('` + channel + `', encode($1::bytea, 'hex')) FROM done
			)
			SELECT done.version, may.free, t.value, t.xmin::text, clock_timestamp(),
				(SELECT count(*) FROM told)
			FROM may LEFT JOIN done ON true
				LEFT JOIN ` + table + ` AS t ON t.key = $1::bytea AND done.version IS NULL`
	}
	return statements{
		read: `SELECT t.value, t.xmin::text, clock_timestamp() FROM (SELECT) AS one LEFT JOIN ` +
			table + ` AS t ON t.key = $1::bytea`,
		touch: `INSERT INTO ` + table + ` AS t (key, value) VALUES ($1::bytea, '')
				ON CONFLICT (key) DO UPDATE SET value = t.value
				RETURNING t.value, t.xmin::text, clock_timestamp()`,
		insert: swap(`INSERT INTO ` + table + ` (key, value)
				SELECT $1::bytea, $5::bytea FROM may
				WHERE timely AND $2::text IS NULL AND $6::bytea IS NULL
				ON CONFLICT DO NOTHING`),
		update: swap(`UPDATE ` + table + ` AS t SET value = $5::bytea FROM may
				WHERE t.key = $1::bytea AND t.xmin = $2::text::xid` + same + `
				AND free AND timely`), // safeguard: pg-timely-update
		remove: swap(`DELETE FROM ` + table + ` AS t USING may
				WHERE t.key = $1::bytea AND t.xmin = $2::text::xid` + same + `
				AND free AND timely AND $5::bytea IS NULL`), // safeguard: pg-kept-delete
		sweep: `DELETE FROM ` + table + ` AS t
				USING unnest($1::bytea[], $2::text[]) AS left_over (key, version)
				WHERE t.key = left_over.key
				AND t.xmin = left_over.version::xid`, // safeguard: pg-sweep-version
		keys: `SELECT key FROM ` + table +
			` WHERE key >= $1::bytea AND substring(key FOR length($2::bytea)) = $2::bytea ORDER ` +
			`BY key LIMIT 100`,
	}
}

// ask makes one statement whose answer is one row. What it returns is sorted by [explain].
func (s *store) ask(ctx context.Context, query string, args []any, answer ...any) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return notSent(err)
	}
	defer conn.Release()
	return explain(conn.QueryRow(ctx, query, args...).Scan(answer...))
}

// notSent is err of what came before a statement.
func notSent(err error) error {
	if err = explain(err); backend.AnswerOf(err) == backend.Unknown {
		err = fmt.Errorf("%w: no connection: %w", backend.ErrUnavailable, err)
	}
	return err
}

// Read implements [record.Store].
func (s *store) Read(ctx context.Context, key string) ([]byte, time.Time, error) {
	r, err := s.read(ctx, s.sql.read, key)
	return r.value, r.time, err
}

func (s *store) read(ctx context.Context, query, key string) (r row, err error) {
	sent, version := time.Now(), new(string)
	err = s.ask(ctx, query, []any{[]byte(key)}, &r.value, &version, &r.time)
	if err != nil {
		return row{}, err
	}
	s.answered(key, sent, version, &r)
	return r, nil
}

// answered completes a row that an answer has told of.
func (s *store) answered(key string, sent time.Time, version *string, r *row) {
	s.heard(sent, r.time)
	r.record = decode(key, r.value)
	if version != nil {
		r.version = *version
	} else {
		r.time = s.now() // safeguard: pg-absent-now
	}
}

// Change implements [record.Store]. It begins with what this client believes to be there: what it
// wrote last, or nothing, which is right for a key's last user and for a new key, and costs one
// round trip. A swap that is wrong about it is answered with what is there.
//
// Safety: the row that is written follows from one version of it and is written over that version
// alone, so no change of anybody is lost. Whatever needs no write is decided by what the server has
// answered within this call. A guessed time is compared with the server's clock in the statement
// that writes, and one that is not guessed is the server's, of this call.
//
// That there is no row has no version: meanwhile another may have been made and deleted, whose last
// token the clock had passed by skew. What keeps the first token of the next row above it is the
// clock alone, so the time of a row that is inserted is always compared.
func (s *store) Change(ctx context.Context, key string,
	f func([]byte, time.Time) ([]byte, error),
) error {
	done, err := s.turn(ctx, key)
	if err != nil {
		return err
	}
	defer done()
	old := s.guess(key)
	var kept []uint64 // tokens of holds that a transaction keeps
	asked := false    // again, after somebody kept it from ending a hold
	backoff := waiting.NewBackoff(time.Millisecond, 100*time.Millisecond)
	for {
		value := prolonged(key, old, kept)
		next, err := f(value, old.time)
		toWrite := err == nil && (next != nil || old.version != "")
		switch {
		case !toWrite && old.guessed: // safeguard: pg-guess
			if old, err = s.read(ctx, s.sql.read, key); err != nil {
				return fmt.Errorf("%w: %w", backend.ErrUnavailable, err) // a read changes nothing
			}
			continue
		case !toWrite:
			return err
		}
		after := row{value: next, record: decode(key, next)}
		ended := endedTokens(old.record, after.record)
		if slices.ContainsFunc(ended, func(token uint64) bool {
			return slices.Contains(kept, token)
		}) {
			return fmt.Errorf("%w: a transaction in flight keeps the hold of %q, see InTx",
				backend.ErrUnavailable, key)
		}
		there, free, err := s.swap(ctx, key, old, after, ended)
		switch {
		case err != nil || there == nil:
			return err
		case free && old.guessed:
			old = *there
			continue
		case !free && asked: // safeguard: pg-two-end
			kept, old = append(kept, ended...), *there
			continue
		}
		// Others were faster, or one is about to end the same hold: a touch waits for the statement
		// of whoever changes the row, and not for a transaction under InTx, which only reads it.
		asked = !free
		if !waiting.Pause(ctx, backoff.Next()) {
			return fmt.Errorf("%w: others change %q all the time: %w", backend.ErrUnavailable, key,
				ctx.Err())
		}
		if old, err = s.read(ctx, s.sql.touch, key); err != nil {
			// A failure here changes nothing that anybody reads.
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
	}
}

// turn returns when nobody else of this client changes key: who comes next knows then what is
// there, and those of a process do not compete with each other.
func (s *store) turn(ctx context.Context, key string) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.turns[key] != nil {
		before := s.turns[key]
		s.mu.Unlock()
		select {
		case <-before:
			err = ctx.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		if err != nil {
			return nil, fmt.Errorf("%w: other changes of %q are under way: %w",
				backend.ErrUnavailable, key, err)
		}
	}
	over := make(chan struct{})
	s.turns[key] = over
	return func() {
		s.mu.Lock()
		delete(s.turns, key)
		s.mu.Unlock()
		close(over)
	}, nil
}

// swap writes next over old, or says what is there instead, and whether it was free to.
func (s *store) swap(ctx context.Context, key string, old, next row,
	ended []uint64,
) (there *row, free bool, err error) {
	query, version := s.sql.update, &old.version
	switch {
	case old.version == "":
		query, version = s.sql.insert, nil
	case next.value == nil:
		query = s.sql.remove
	}
	var guessed *time.Time
	var believed []byte
	if old.guessed || old.version == "" { // safeguard: pg-timely-insert
		guessed = &old.time
	}
	if old.guessed {
		believed = old.value
	}
	there = &row{}
	sent, written, seen := time.Now(), (*string)(nil), (*string)(nil)
	err = s.ask(ctx, query, []any{
		[]byte(key), version, locksOf(key, ended), guessed, next.value,
		believed,
	},
		&written, &free, &there.value, &seen, &there.time, new(int))
	switch {
	// Another one came first, where the default isolation is stricter than READ COMMITTED.
	case isCode(err, "40001"):
		*there, err = s.read(ctx, s.sql.read, key)
		return there, true, err
	case err != nil:
		s.forget(key)
		return nil, false, err
	}
	s.answered(key, sent, seen, there)
	if written != nil {
		next.version = *written
		s.remember(key, next)
		return nil, true, nil
	}
	return there, free, nil
}

// keys is for List: 100 at a time.
func (s *store) keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for from, more := []byte(prefix), true; more; {
			rows, err := s.pool.Query(ctx, s.sql.keys, from, []byte(prefix))
			if err != nil {
				yield("", notSent(err))
				return
			}
			some, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
			if err != nil {
				yield("", explain(err))
				return
			}
			for _, key := range some {
				if !yield(string(key), nil) {
					return
				}
				from = append(slices.Clone(key), 0) // the next one at least
			}
			more = len(some) > 0
		}
	}
}

// decode returns an empty record for what cannot be read, which no verb changes.
func decode(key string, value []byte) *record.Record {
	r, err := record.Decode(key, value)
	if err != nil {
		r = &record.Record{}
	}
	return r
}

// endedTokens returns the tokens of holds that are in before and not in after.
func endedTokens(before, after *record.Record) (ended []uint64) {
	for _, h := range before.Holds {
		if !slices.ContainsFunc(after.Holds, func(o record.Hold) bool {
			return o.Token == h.Token
		}) {
			ended = append(ended, h.Token)
		}
	}
	return ended
}

// locksOf are PostgreSQL's advisory locks of holds. Two holds of which one has the other's number,
// by a chance of one in 2^64, wait for each other's transactions, and that is all.
func locksOf(key string, tokens []uint64) []int64 {
	locks := make([]int64, len(tokens))
	for i, token := range tokens {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("holdfast\x00"+key), token))
		locks[i] = int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // any 64 bits
	}
	return locks
}

// prolonged is the value of a row with longer leases for the holds of which kept has the tokens.
func prolonged(key string, r row, kept []uint64) []byte {
	if len(kept) == 0 {
		return r.value
	}
	longer := *r.record
	longer.Holds = slices.Clone(longer.Holds)
	for i := range longer.Holds {
		h, until := &longer.Holds[i], r.time.Add(keptFor)
		if slices.Contains(kept, h.Token) && h.Expires.Before(until) {
			h.Expires = until
		}
	}
	return longer.Encode(key)
}
