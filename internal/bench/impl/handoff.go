package impl

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
)

const handOffSettings = "one string is the queue; a release queues the process's next claim and " +
	"grants to the first"

// The queue is one string of claims, idLen bytes each, of which the first holds the key. A claim
// begins with its client's channel. Tokens are the server's clock, and one more at each hand-off,
// which the message carries; so there is no second key, and nothing is counted in the store.
const (
	channelLen = 8
	idLen      = channelLen + 10

	handOffAcquire = `if redis.call('APPEND', KEYS[1], ARGV[1]) > 18 then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local t = redis.call('TIME') return t[1] * 1000000 + t[2]`
	handOffRelease = `local v = redis.call('GET', KEYS[1])
if not v or string.sub(v, 1, 18) ~= ARGV[1] then return -1 end
v = string.sub(v, 19) .. ARGV[3]
if v == '' then redis.call('DEL', KEYS[1]) return 0 end
redis.call('SET', KEYS[1], v, 'PX', ARGV[2])
local first = string.sub(v, 1, 18)
if first == ARGV[3] then return 1 end
redis.call('PUBLISH', string.sub(first, 1, 8), first .. ARGV[4])
return 0`
)

// A handOff is a process with one claim at most in the store's queue, and a queue of its own. It
// has one key, as the benchmark does.
type handOff struct {
	acquire, release script
	channel          string

	mu     sync.Mutex
	seq    int
	busy   bool
	queue  []*claim
	queued *claim // in the store's queue
}

type claim struct {
	id    string
	token chan uint64
}

func newHandOff(ctx context.Context, b bare) (Client, error) {
	f := &handOff{
		acquire: b.script(handOffAcquire), release: b.script(handOffRelease),
		channel: rand.Text()[:channelLen],
	}
	return f, b.subscribe(ctx, f.channel, func(message string) {
		if len(message) > idLen {
			before, _ := strconv.ParseUint(message[idLen:], 10, 64)
			f.granted(message[:idLen], before+1)
		}
	})
}

// granted wakes the claim that is in the store's queue, if it is this one.
func (f *handOff) granted(id string, token uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.queued; c != nil && c.id == id {
		f.queued = nil
		c.token <- token
	}
}

func (f *handOff) Lock(ctx context.Context, key string) (Held, error) {
	c := &claim{token: make(chan uint64, 1)}
	f.mu.Lock()
	f.seq++
	c.id = fmt.Sprintf("%s%010d", f.channel, f.seq)
	first := !f.busy
	f.busy = true
	if first {
		f.queued = c
	} else {
		f.queue = append(f.queue, c)
	}
	f.mu.Unlock()
	if first {
		token, err := f.acquire(ctx, key, c.id, lease)
		if err != nil {
			return nil, err
		}
		if token > 0 {
			f.granted(c.id, uint64(token))
		}
	}
	select {
	case token := <-c.token:
		return &held{token, func() error { return f.unlock(key, c.id, token) }}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *handOff) unlock(key, id string, token uint64) error {
	next := ""
	f.mu.Lock()
	if len(f.queue) > 0 {
		f.queued, f.queue = f.queue[0], f.queue[1:]
		next = f.queued.id
	} else {
		f.busy = false
	}
	f.mu.Unlock()
	own, err := f.release(context.Background(), key, id, lease, next, strconv.FormatUint(token, 10))
	if err != nil || own < 0 {
		return fmt.Errorf("release: %d %w", own, err)
	}
	if own > 0 {
		f.granted(next, token+1)
	}
	return nil
}
