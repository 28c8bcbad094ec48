package generations

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

// What Redisson keeps: a hash of holders and counts, with a lease of 30 s, which its watchdog
// renews every 10 s.
const (
	holderField = "uuid:thread-1"
	watchLock   = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end
return redis.call('pttl', KEYS[1])`
	watchRenew = `if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then return redis.call('pexpire', KEYS[1], ARGV[1]) end return 0`
)

var watchdog = scenario{
	title: "A watchdog that renews, and outlives its work",
	fails: "the watchdog renews a lock that nobody uses: it blocks all others for as long as the process runs",
	holds: "Do unlocks when the work ends, however it ends; MaxHold bounds work that never does",
	old: func(s *scene) {
		rdb := s.redis(resource)
		got := reply(rdb.Eval(s.ctx, watchLock, []string{resource}, 30_000, holderField).Result())
		s.did("A", "EVAL lock.lua 1 "+resource+" 30000 "+holderField, got)
		s.want("A's lock", got, "nil")
		s.did("A", "its thread dies of an exception that nobody catches; the watchdog lives", "")
		for range 60 { // ten minutes, each round 10 s that pass and a renewal
			s.must("let 10s pass", rdb.PExpire(s.ctx, resource, 20*time.Second).Err())
			got = reply(rdb.Eval(s.ctx, watchRenew, []string{resource}, 30_000, holderField).Result())
			s.want("the watchdog's renewal", got, "1")
		}
		s.did("A", "60 times, every 10s: EVAL renew.lua …", "1")
		ttl := reply(rdb.Do(s.ctx, "TTL", resource).Result())
		s.did("B", "after ten minutes: TTL "+resource, ttl)
		if ttl != "30" && ttl != "29" { // Redis rounds; some of the 30 s are over by now
			s.want("the lease after ten minutes", ttl, "30")
		}
	},
	holdfast: func(s *scene) {
		a, b := s.party("A", s.url), s.party("B", s.url)
		s.did("A", "Do "+resource+": the work panics", a.panics(resource))
		b.unlocks(b.tries(resource), nil)
		g, err := a.locks.TryLock(s.ctx, resource, locker.MaxHold(s.ttl))
		s.must("A's TryLock", err)
		a.got(g, "TryLock with MaxHold", resource, "granted")
		s.did("A", "its work hangs", "")
		next := b.waits(resource)
		a.has(g, locker.ErrMaxHold)
		s.rises(g, next)
		b.unlocks(next, nil)
	},
}

// panics has work panic under the lock, and says how that ended.
func (p *party) panics(key string) (how string) {
	defer func() { how = fmt.Sprint("the panic goes on: ", recover()) }()
	err := locker.Do(p.ctx, p.locks, key, func(context.Context, struct{}) error { panic("bad data") })
	return fmt.Sprint(err)
}
