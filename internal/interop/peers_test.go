package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

const ttl = 20 * time.Second

// A peer is another library at work. Each method reports yes or no, and fails the test if it cannot
// tell.
type peer interface {
	lock(key string) bool // asks once
	extend(key string) bool
	unlock(key string) bool
}

// The peers, by name. The second half can lock on several servers.
var (
	single = map[string]func(testing.TB, ...*testserver.Server) peer{
		"bsm/redislock": bsmPeer, "redis-py": pyPeer, "rueidislock": rueidisPeer,
	}
	quorum = map[string]func(testing.TB, ...*testserver.Server) peer{
		"redsync":      redsyncPeer,
		"node-redlock": nodePeer,
	}
)

type bsm struct {
	t    testing.TB
	c    *redislock.Client
	held map[string]*redislock.Lock
}

func bsmPeer(t testing.TB, servers ...*testserver.Server) peer {
	return &bsm{t, redislock.New(client(t, servers[0])), map[string]*redislock.Lock{}}
}

func (p *bsm) lock(key string) bool {
	l, err := p.c.Obtain(context.Background(), key, ttl, nil)
	p.held[key] = l
	return p.yes(err, redislock.ErrNotObtained)
}

func (p *bsm) extend(key string) bool {
	return p.yes(p.held[key].Refresh(context.Background(), ttl, nil), redislock.ErrNotObtained)
}

func (p *bsm) unlock(key string) bool {
	return p.yes(p.held[key].Release(context.Background()), redislock.ErrLockNotHeld)
}

func (p *bsm) yes(err, no error) bool {
	if err != nil && !errors.Is(err, no) {
		p.t.Fatal(err)
	}
	return err == nil
}

type sync struct {
	t    testing.TB
	r    *redsync.Redsync
	held map[string]*redsync.Mutex
}

func redsyncPeer(t testing.TB, servers ...*testserver.Server) peer {
	var pools []redis.Pool
	for _, s := range servers {
		pools = append(pools, pool.NewPool(client(t, s)))
	}
	return &sync{t, redsync.New(pools...), map[string]*redsync.Mutex{}}
}

func (p *sync) lock(key string) bool {
	p.held[key] = p.r.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1))
	return p.held[key].TryLock() == nil
}

func (p *sync) extend(key string) bool {
	ok, _ := p.held[key].Extend()
	return ok
}

func (p *sync) unlock(key string) bool {
	ok, _ := p.held[key].Unlock()
	return ok
}

// A rueidis is rueidislock with one key for a lock (KeyMajority 1), which it renews by itself.
type rueidis struct {
	t      testing.TB
	l      rueidislock.Locker
	held   context.Context
	cancel context.CancelFunc
}

const rueidisPrefix = "rueidislock:0:" // its default, and the number of the one key

func rueidisPeer(t testing.TB, servers ...*testserver.Server) peer {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidisclient.ClientOption{
			InitAddress:       []string{servers[0].Addr()},
			ForceSingleClient: true,
		},
		KeyMajority: 1, KeyValidity: ttl,
		TryNextAfter: time.Second, // the 20ms of its default are too short for a busy machine
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return &rueidis{t: t, l: l}
}

func (p *rueidis) key(name string) string { return rueidisPrefix + name }

func (p *rueidis) lock(key string) bool {
	held, cancel, err := p.l.TryWithContext(context.Background(),
		strings.TrimPrefix(key, rueidisPrefix))
	if err != nil && !errors.Is(err, rueidislock.ErrNotLocked) {
		p.t.Fatal(err)
	}
	if err == nil {
		p.held, p.cancel = held, cancel
	}
	return err == nil
}

func (p *rueidis) extend(string) bool { return p.held.Err() == nil }

func (p *rueidis) unlock(string) bool {
	if !p.extend("") {
		return false
	}
	p.cancel()
	return true
}

func client(t testing.TB, s *testserver.Server) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A process is a peer that is not in Go.
type process struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

func nodePeer(t testing.TB, servers ...*testserver.Server) peer {
	return start(t, "node", "js/peer.mjs", servers)
}

// Debian's python3-redis is for Debian's own interpreter.
func pyPeer(t testing.TB, servers ...*testserver.Server) peer {
	return start(t, "/usr/bin/python3", "py/peer.py", servers)
}

func start(t testing.TB, interpreter, script string, servers []*testserver.Server) peer {
	args := []string{script}
	for _, s := range servers {
		args = append(args, strconv.Itoa(s.Port()))
	}
	cmd := exec.Command(interpreter, args...)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatalf("%v (`make interop` installs what is missing)", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &process{t, in, bufio.NewReader(out)}
}

func (p *process) lock(key string) bool   { return p.ask("lock", key, ttl.Milliseconds()) }
func (p *process) extend(key string) bool { return p.ask("extend", key, ttl.Milliseconds()) }
func (p *process) unlock(key string) bool { return p.ask("unlock", key) }

func (p *process) ask(words ...any) bool {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, words...); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil || line != "yes\n" && line != "no\n" {
		p.t.Fatalf("%q, %v", line, err)
	}
	return strings.HasPrefix(line, "yes")
}
