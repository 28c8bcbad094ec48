package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/etcdbackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/fence"
)

// A stock is what a hold protects: how many pieces are left.
type stock struct {
	read  func(ctx context.Context) (left int, err error) // shows the token
	write func(ctx context.Context, left int) error       // so does this, fenced
	naive func(ctx context.Context, left int) error       // as if there were no tokens
	close func() error
}

// stocks are the ways to fence one. data says where it is.
var stocks = map[string]func(ctx context.Context, b backend.Backend, data string,
	h locker.Hold) (stock, error){
	"http":         overHTTP,
	"sqlite row":   inRow("sqlite"),
	"sqlite tx":    inTx("sqlite"),
	"postgres row": inRow("pgx"),
	"postgres tx":  inTx("pgx"),
	"redis":        inRedis,
	"rueidis":      inRedis,
	"etcd":         inEtcd,
}

func overHTTP(_ context.Context, _ backend.Backend, url string, h locker.Hold) (stock, error) {
	client := &http.Client{Transport: fence.Transport{Token: h.Token}}
	do := func(ctx context.Context, c *http.Client, method, path, content string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, method, url+path+h.Key,
			strings.NewReader(content))
		if err != nil {
			return "", err
		}
		reply, err := c.Do(r)
		if err != nil {
			return "", err
		}
		defer func() { _ = reply.Body.Close() }()
		if err := fence.Refused(reply); err != nil {
			return "", err
		}
		text, err := io.ReadAll(reply.Body)
		if err == nil && reply.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", reply.Status, text)
		}
		return string(text), err
	}
	return stock{
		read: func(ctx context.Context) (int, error) {
			text, err := do(ctx, client, http.MethodGet, "/fenced/", "")
			if err != nil {
				return 0, err
			}
			return strconv.Atoi(text)
		},
		write: func(ctx context.Context, left int) error {
			_, err := do(ctx, client, http.MethodPut, "/fenced/", strconv.Itoa(left))
			return err
		},
		naive: func(ctx context.Context, left int) error {
			_, err := do(ctx, http.DefaultClient, http.MethodPut, "/naive/", strconv.Itoa(left))
			return err
		},
		close: func() error { client.CloseIdleConnections(); return nil },
	}, nil
}

// shop is the server of overHTTP.
func shop() http.Handler {
	var left sync.Map // by sku
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, sku, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if r.Method == http.MethodPut {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			left.Store(sku, string(text))
		}
		now, _ := left.Load(sku)
		_, _ = fmt.Fprint(w, now)
	})
	mux := http.NewServeMux()
	mux.Handle("/fenced/", fence.Handler(new(fence.Gate), func(r *http.Request) string {
		return r.URL.Path
	}, serve))
	mux.Handle("/naive/", serve)
	return mux
}

const tables = `CREATE TABLE IF NOT EXISTS stock
(sku TEXT PRIMARY KEY, units BIGINT NOT NULL, token BIGINT NOT NULL DEFAULT 0)`

func opened(driver, data string) (*sql.DB, error) { return sql.Open(driver, data) }

func naiveSQL(db *sql.DB, sku string) func(ctx context.Context, left int) error {
	return func(ctx context.Context, left int) error {
		_, err := db.ExecContext(ctx, `UPDATE stock SET units = $1 WHERE sku = $2`, left, sku)
		return err
	}
}

// inRow has a column for the token beside the data: one statement checks and writes.
func inRow(driver string) func(context.Context, backend.Backend, string,
	locker.Hold) (stock, error) {
	return func(_ context.Context, _ backend.Backend, data string, h locker.Hold) (stock, error) {
		db, err := opened(driver, data)
		return stock{
			read: func(ctx context.Context) (left int, err error) {
				_, err = fence.Exec(ctx, db, h.Key, h.Token,
					`UPDATE stock SET token = $1 WHERE sku = $2 AND token <= $1`, h.Token, h.Key)
				if err == nil {
					err = db.QueryRowContext(ctx, `SELECT units FROM stock WHERE sku = $1`,
						h.Key).Scan(&left)
				}
				return left, err
			},
			write: func(ctx context.Context, left int) error {
				_, err := fence.Exec(ctx, db, h.Key, h.Token,
					`UPDATE stock SET units = $1, token = $2 WHERE sku = $3 AND token <= $2`, left,
					h.Token, h.Key)
				return err
			},
			naive: naiveSQL(db, h.Key),
			close: db.Close,
		}, err
	}
}

// inTx has a table for tokens, and guards transactions.
func inTx(driver string) func(context.Context, backend.Backend, string,
	locker.Hold) (stock, error) {
	return func(_ context.Context, _ backend.Backend, data string, h locker.Hold) (stock, error) {
		db, err := opened(driver, data)
		fenced := func(ctx context.Context, do func(tx *sql.Tx) error) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := fence.Admit(ctx, tx, h.Key, h.Token); err != nil {
				return err
			}
			if err := do(tx); err != nil {
				return err
			}
			return tx.Commit()
		}
		return stock{
			read: func(ctx context.Context) (left int, err error) {
				err = fenced(ctx, func(tx *sql.Tx) error {
					return tx.QueryRowContext(ctx, `SELECT units FROM stock WHERE sku = $1`,
						h.Key).Scan(&left)
				})
				return left, err
			},
			write: func(ctx context.Context, left int) error {
				return fenced(ctx, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, `UPDATE stock SET units = $1 WHERE sku = $2`,
						left, h.Key)
					return err
				})
			},
			naive: naiveSQL(db, h.Key),
			close: db.Close,
		}, err
	}
}

func inRedis(_ context.Context, b backend.Backend, addr string, h locker.Hold) (stock, error) {
	rb, ok := b.(fence.RedisBackend)
	if !ok {
		return stock{}, fmt.Errorf("%T has no fenced writes", b)
	}
	data, key := fence.InRedis(rb, h), "stock:{"+h.Key+"}"
	past := redis.NewClient(&redis.Options{Addr: addr})
	return stock{
		read: func(ctx context.Context) (int, error) {
			text, _, err := data.Get(ctx, key)
			if err != nil {
				return 0, err
			}
			return strconv.Atoi(text)
		},
		write: func(ctx context.Context, left int) error {
			return data.Set(ctx, key, strconv.Itoa(left))
		},
		naive: func(ctx context.Context, left int) error {
			return past.Set(ctx, key, left, 0).Err()
		},
		close: past.Close,
	}, nil
}

func inEtcd(ctx context.Context, b backend.Backend, endpoint string, h locker.Hold) (stock, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint},
		Logger:    zap.NewNop(),
	})
	if err != nil {
		return stock{}, err
	}
	eb, ok := b.(*etcdbackend.Backend)
	if !ok {
		return stock{}, errors.New("not etcd")
	}
	proof, err := eb.Proof(ctx, h.StoreKey, h.Token)
	if err != nil {
		return stock{}, err
	}
	key := "stock/" + h.Key
	return stock{
		read: func(ctx context.Context) (int, error) {
			reply, err := client.Get(ctx, key)
			if err != nil || len(reply.Kvs) == 0 {
				return 0, fmt.Errorf("%d entries: %w", len(reply.Kvs), err)
			}
			return strconv.Atoi(string(reply.Kvs[0].Value))
		},
		write: func(ctx context.Context, left int) error {
			reply, err := client.Txn(ctx).If(proof).Then(clientv3.OpPut(key,
				strconv.Itoa(left))).Commit()
			if err == nil && !reply.Succeeded {
				err = fence.ErrStale
			}
			return err
		},
		naive: func(ctx context.Context, left int) error {
			_, err := client.Put(ctx, key, strconv.Itoa(left))
			return err
		},
		close: client.Close,
	}, nil
}

// schema is held while tables are made: in PostgreSQL one of two that do so at a time fails.
var schema sync.Mutex

// prepared makes the tables, with a row for the sku.
func prepared(t *testing.T, driver, data, sku string) *sql.DB {
	t.Helper()
	db, err := opened(driver, data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	schema.Lock()
	defer schema.Unlock()
	for _, statement := range []string{tables, fence.Table} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO stock (sku, units) VALUES ($1, 0)`,
		sku); err != nil {
		t.Fatal(err)
	}
	return db
}

func sqliteFile(t *testing.T) string {
	return "file:" + t.TempDir() +
		"/shop.db?_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_txlock=immediate"
}
