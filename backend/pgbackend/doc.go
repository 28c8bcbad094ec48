// Package pgbackend keeps locks in PostgreSQL: a table with a row for each key, which is a record
// of package [record]. It is a module of its own, because of its driver, pgx.
//
//	// after importing this package:
//	b, err := backend.Open(ctx,
//		"postgres://app:secret@db/shop?sslmode=verify-full&lock_table=locks")
//	// with a pool that the program has:
//	b, err := pgbackend.New(ctx, pool, pgbackend.Config{})
//
// PostgreSQL 12 and later work; the tests run on 15.
//
// # URLs
//
//	postgres://[user[:password]@]host[:5432][,host…]/database[?…]
//
// and the same with postgresql://. Percent-encode special characters in user and password. Of
// several hosts the one that takes writes is used. Without a host, and for whatever else is
// missing, pgx looks into PGHOST and the like. The query may have, each once:
//
//	lock_table  the table, default holdfast_locks; shop.locks is one of the schema shop
//	poll        how often a key that somebody waits for is read, such as 250ms, and no
//	            connection listens; for a pooler
//
// and whatever pgx knows: sslmode, sslrootcert, pool_max_conns, connect_timeout, and the server's
// own settings.
//
// # Rights
//
// The first client makes the table, if the user may; else a *[RightsError] has the statements for
// an administrator. A user needs SELECT, INSERT, UPDATE and DELETE on the table, and SELECT for
// [InTx] alone.
//
// # What it promises, and what not
//
// All that package locker offers but the signal of losses; first come, first served, and tokens
// that rise. A hold lasts for its TTL and 50 ms by the server's clock, and is lost if that steps
// forward by more. What was granted outlives a crash of the server, unless fsync is off; without
// synchronous_commit the package refuses to work. A failover to a standby that lacks the last
// commits loses the locks that are in them:
// synchronous_standby_names keeps them, for locks and everything else. A server that is restored
// from a backup knows nothing of later grants.
//
// [InTx] has none of these limits: lock and data are in one transaction, so whatever takes the lock
// takes the data.
//
// # What it costs
//
// A verb is one statement, and a transaction by itself, for the client that used the key last and
// for a new key; for others two. (pgx asks a connection that was idle for a second whether it
// lives, which is another round trip.) While anybody waits, one connection of each client listens,
// and every change is told by NOTIFY: commits that notify are made one after the other by the
// server, in all of its databases.
//
// A key that is locked again and again keeps its row, which is updated in place; one that was held
// for over 50 ms has its row deleted by the release, and another one by the client, when it has not
// used it for half a minute, or is closed. What a client leaves that is killed is at most 1,000
// rows of 60 bytes, and those of the holds that it had, until somebody asks for the key again.
//
// # Poolers
//
// A pooler that gives each transaction another connection, as PgBouncer does in transaction mode,
// passes no notices on: open with poll. Without it waiters are told that notices do not arrive, and
// ask from time to time. PgBouncer before 1.21 knows no prepared statements:
// default_query_exec_mode=exec does without. Both were tried with 1.18.
package pgbackend
