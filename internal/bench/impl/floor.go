package impl

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// The floors are what a lock of our kind costs when the least is done for it: tokens by the server's clock and a wake-up, or a line in the
// store and a grant that the release makes, and nothing of what keeps that safe when anything fails. They say how far a goal in pings or in
// bare commands is from what can be had on the machine that measures.
var (
	_ = register(Impl{
		Name: "floor-fenced", Role: Limit, Settings: "go-redis, no library: SET NX with TIME as token; GET, DEL, PUBLISH",
		Modules: []string{"github.com/redis/go-redis/v9"}, Sent: []string{"evalsha", "eval"}, Fenced: true, Extra: true,
		Skip: []string{"S2", "S3", "S4", "S6"}, Open: openFloorFenced,
	})
	_ = register(Impl{
		Name: "floor-hand-off", Role: Limit, Settings: "go-redis, no library: a list as the line; a release that queues the process's next claim and grants the first in line",
		Modules: []string{"github.com/redis/go-redis/v9"}, Sent: []string{"evalsha", "eval"}, Fenced: true, Extra: true,
		Skip: []string{"S1", "S6"}, Open: openFloorHandOff,
	})
)

type floorFenced struct {
	c        *redis.Client
	acq, rel *redis.Script
}

func openFloorFenced(_ context.Context, addr string) (Client, error) {
	return &floorFenced{
		redis.NewClient(&redis.Options{Addr: addr}),
		redis.NewScript(`local t = redis.call('TIME')
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return t[1] * 1000000 + t[2] end return 0`),
		redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[1], '') return 1`),
	}, nil
}

func (f *floorFenced) Close() error { return f.c.Close() }

func (f *floorFenced) Lock(ctx context.Context, key string) (Held, error) {
	h := &floorFencedHeld{f, ctx, key, rand.Text(), 0}
	n, err := f.acq.Run(ctx, f.c, []string{key}, h.id, TTL.Milliseconds()).Int64()
	if err == nil && n == 0 {
		err = errTaken
	}
	h.token = uint64(n)
	return h, err
}

type floorFencedHeld struct {
	f       *floorFenced
	ctx     context.Context
	key, id string
	token   uint64
}

func (h *floorFencedHeld) Token() uint64 { return h.token }

func (h *floorFencedHeld) Unlock() error {
	return h.f.rel.Run(h.ctx, h.f.c, []string{h.key}, h.id).Err()
}

// A floorHandOff is a process with one claim at most in the store's line, and a line of its own.
type floorHandOff struct {
	c        *redis.Client
	sub      *redis.PubSub
	acq, rel *redis.Script
	name     string

	mu    sync.Mutex
	seq   int
	busy  bool
	line  []*floorClaim
	stood *floorClaim // in the store's line
}

type floorClaim struct {
	id    string
	token chan uint64
}

func openFloorHandOff(ctx context.Context, addr string) (Client, error) {
	f := &floorHandOff{
		c:    redis.NewClient(&redis.Options{Addr: addr}),
		name: rand.Text(),
		acq: redis.NewScript(`if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[1] .. 'n') end
redis.call('RPUSH', KEYS[1] .. 'q', ARGV[1]) return 0`),
		rel: redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local q = KEYS[1] .. 'q'
if ARGV[3] ~= '' then redis.call('RPUSH', q, ARGV[3]) end
local n = redis.call('LPOP', q)
if not n then redis.call('DEL', KEYS[1]) return 0 end
redis.call('SET', KEYS[1], n, 'PX', ARGV[2])
local token = redis.call('INCR', KEYS[1] .. 'n')
if n == ARGV[3] then return token end
redis.call('PUBLISH', string.match(n, '^[^ ]*'), n .. ' ' .. token)
return 0`),
	}
	f.sub = f.c.Subscribe(ctx, f.name)
	if _, err := f.sub.Receive(ctx); err != nil {
		_ = f.c.Close()
		return nil, err
	}
	go func() {
		for {
			m, err := f.sub.ReceiveMessage(context.Background())
			if err != nil {
				return
			}
			id, text := m.Payload[:strings.LastIndexByte(m.Payload, ' ')], m.Payload[strings.LastIndexByte(m.Payload, ' ')+1:]
			token, _ := strconv.ParseUint(text, 10, 64)
			f.mu.Lock()
			c := f.stood
			if c != nil && c.id == id {
				f.stood = nil
				c.token <- token
			}
			f.mu.Unlock()
		}
	}()
	return f, nil
}

func (f *floorHandOff) Close() error {
	_ = f.sub.Close()
	return f.c.Close()
}

func (f *floorHandOff) Lock(ctx context.Context, key string) (Held, error) {
	c := &floorClaim{token: make(chan uint64, 1)}
	f.mu.Lock()
	f.seq++
	c.id = f.name + " " + strconv.Itoa(f.seq)
	first := !f.busy
	f.busy = true
	if first {
		f.stood = c
	} else {
		f.line = append(f.line, c)
	}
	f.mu.Unlock()
	if first {
		token, err := f.acq.Run(ctx, f.c, []string{key}, c.id, TTL.Milliseconds()).Uint64()
		if err != nil {
			return nil, err
		}
		if token > 0 {
			f.mu.Lock()
			f.stood = nil
			f.mu.Unlock()
			c.token <- token
		}
	}
	select {
	case token := <-c.token:
		return &floorHandOffHeld{f, key, c.id, token}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type floorHandOffHeld struct {
	f       *floorHandOff
	key, id string
	token   uint64
}

func (h *floorHandOffHeld) Token() uint64 { return h.token }

func (h *floorHandOffHeld) Unlock() error {
	f, next := h.f, ""
	f.mu.Lock()
	var c *floorClaim
	if len(f.line) > 0 {
		c, f.line = f.line[0], f.line[1:]
		f.stood, next = c, c.id
	} else {
		f.busy = false
	}
	f.mu.Unlock()
	token, err := f.rel.Run(context.Background(), f.c, []string{h.key}, h.id, TTL.Milliseconds(), next).Int64()
	if err != nil || token < 0 {
		return fmt.Errorf("release: %d %w", token, err)
	}
	if c != nil && token > 0 {
		f.mu.Lock()
		f.stood = nil
		f.mu.Unlock()
		c.token <- uint64(token)
	}
	return nil
}
