package smallredis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/smallredis"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.StopAfter(m)) }

// TestSameAnswers runs random scripts and commands on a small Redis and on a real one: the answers
// must be the same, and so must what the keys have afterwards. The time of the scripts is given to
// both; expiries go by the servers' own clocks and may differ by two seconds. Now and then a
// millisecond of that decides which way a script takes; so what differs is run again, and counts if
// it differs each time.
func TestSameAnswers(t *testing.T) {
	c := redis.NewClient(&redis.Options{
		Addr:            testserver.SharedRedis(t).Addr(),
		DisableIdentity: true,
	})
	defer func() { _ = c.Close() }()
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	ifeq := c.Do(t.Context(), "SET", "smallredis", "", "IFEQ", "none").Err()
	for round := range rounds {
		var p *pair
		for attempt := range 5 {
			p = &pair{
				t: t, real: c, r: rand.New(rand.NewPCG(uint64(round), 1)),
				us: 1_800_000_000_000_000,
			}
			p.small = smallredis.New(time.Now, strings.Repeat("a", 40))
			p.small.IFEQ = ifeq == nil || errors.Is(ifeq, redis.Nil)
			if p.run(fmt.Sprintf("k%d.%d", round, attempt)); p.differs == "" {
				break
			}
		}
		if p.differs != "" {
			t.Fatalf("round %d: %s\n%s", round, p.differs, strings.Join(p.log, "\n"))
		}
	}
}

type pair struct {
	t     *testing.T
	small *smallredis.Server
	real  *redis.Client
	r     *rand.Rand
	us    int64 // the time, as it is given to both
	key   string
	log   []string

	differs string // how they do; empty if not
}

func (p *pair) run(name string) {
	l, err := script.NewLayout("same:", time.Hour, time.Minute)
	if err != nil {
		p.t.Fatal(err)
	}
	l = l.For("client")
	p.key = l.Key(name)
	claims := p.claims(name)
	for range 40 {
		p.us += p.r.Int64N([]int64{100, 1e6, 7200e6}[p.r.IntN(3)])
		p.both("SET", "same:time", fmt.Sprintf("%d %d", p.us/1e6, p.us%1e6))
		c := claims[p.r.IntN(len(claims))]
		if p.r.IntN(4) == 0 {
			c.NoneInFlight = true
		}
		layout := l
		if p.r.IntN(4) == 0 && !c.Queue {
			layout = l.Watched()
		}
		switch p.r.IntN(13) {
		case 12:
			p.both(p.small.Damage(p.r, p.key)...)
		case 0, 1, 2, 3, 4:
			p.eval("acquire", layout.Acquire(c))
		case 5, 6:
			if c.Load {
				c.Save = []byte(fmt.Sprint("value ", p.r.IntN(9)))
			}
			p.eval("release", layout.Release(c))
		case 7:
			p.eval("renew", layout.Renew(c))
		case 8:
			if c.Queue {
				p.eval("heartbeat", layout.Heartbeat([]backend.Claim{c}))
			}
		case 9:
			p.eval("inspect", layout.Inspect(name))
		case 10: // a native release or acquire, that fits or not
			stored, _ := p.small.Do("GET", p.key)
			text, _ := stored.(string)
			if p.r.IntN(2) == 0 {
				text += "x"
			}
			value := "h2 " + strconv.FormatInt(p.us, 10)
			switch at := time.Now().Add(time.Hour).UnixMilli(); p.r.IntN(4) {
			case 0:
				p.both("SET", p.key, value, "IFEQ", text, "PX", "3600000")
			case 1:
				p.both("SET", p.key, value, "IFEQ", text, "PXAT", "1000") // long ago
			default:
				p.both("SET", p.key, value, "IFEQ", text, "PXAT", strconv.FormatInt(at, 10))
			}
		case 11:
			commands := [][]string{
				{"GET", p.key},
				{"HGETALL", p.key},
				{"PTTL", p.key},
				{"SET", p.key, "h2 1", "NX", "PX", "100000"},
				{"HDEL", p.key, "none"},
				{"SET", p.key, "x", "XX"},
				{"DEL", p.key, p.key + ":state"},
				{"SET", p.key, "x", "PX", "0"},
				{"HGET", p.key, "v"},
				{"PEXPIRE", p.key, "3600000"},
				{"HMGET", p.key, "v", "none"},
				{"SET", p.key},
				{"HSET", p.key, "v"},
				{"SET", p.key, "h2 5", "KEEPTTL"},
			}
			p.both(commands[p.r.IntN(len(commands))]...)
		}
		for _, key := range []string{p.key, p.key + ":state", p.key + ":early", p.key + ":ran"} {
			p.both("PTTL", key)
			if _, err := p.small.Do("GET", key); err != nil {
				p.both("HGETALL", key)
			} else {
				p.both("GET", key)
			}
		}
		if p.differs != "" {
			return
		}
	}
}

// claims are of few owners in few modes, so that they meet.
func (p *pair) claims(key string) (all []backend.Claim) {
	modes := p.r.Perm(5)[:1+p.r.IntN(2)]
	if p.r.IntN(3) == 0 {
		modes = []int{0}
	}
	for i := range 6 {
		c := backend.Claim{
			Key: key, Owner: fmt.Sprint("owner", i), TTL: time.Hour,
			Meta: backend.Meta{Service: "s"},
		}
		switch modes[p.r.IntN(len(modes))] {
		case 1:
			c.Mode = backend.Shared
		case 2:
			c.Mode, c.Limit, c.Weight = backend.Permit, 3, 1+p.r.IntN(2)
		case 3:
			c.Reentrant, c.Hold, c.Owner = true, fmt.Sprint("hold", i), fmt.Sprint("owner", i%2)
		case 4:
			c.Load = true
		}
		if p.r.IntN(2) == 0 {
			c.Queue, c.WaiterTTL = true, time.Duration(1+p.r.IntN(3))*time.Hour
		}
		if c.Mode == backend.Exclusive && !c.Reentrant {
			c.Reserve = p.r.IntN(5)
		}
		all = append(all, c)
	}
	return all
}

var clock = regexp.MustCompile(`redis\.call\('TIME'\)`)

// eval runs a script on both, with the time that p has.
func (p *pair) eval(verb string, r script.Request) {
	source := "local function give_time()\n  local s, us = string.match(redis.call('GET', " +
		"'same:time'), '^(%d+) (%d+)$')\n  return {s, us}\nend\n" +
		clock.ReplaceAllLiteralString(r.Script.Source(), "give_time()")
	mine, err := p.small.Eval(source, r.Keys, r.Args)
	given := make([]any, len(r.Args))
	for i := range r.Args {
		given[i] = r.Args[i]
	}
	theirs, real := p.real.Eval(p.t.Context(), source, r.Keys, given...).Result()
	p.same(verb+" "+strings.Join(r.Args, " "), mine, err, theirs, real)
}

// both executes a command on both.
func (p *pair) both(args ...string) {
	words := make([]any, len(args))
	for i := range args {
		words[i] = args[i]
	}
	cmd := redis.NewCmd(context.Background(), words...)
	_ = p.real.Process(p.t.Context(), cmd)
	theirs, real := cmd.Result()
	mine, err := p.small.Do(args...)
	p.same(strings.Join(args, " "), mine, err, theirs, real)
}

func (p *pair) same(what string, mine any, err error, theirs any, real error) {
	p.t.Helper()
	a, b := flat(mine, err), flat(theirs, real)
	if strings.HasPrefix(what, "HGETALL") || strings.HasPrefix(what, "inspect") {
		a, b = pairs(a), pairs(b)
	}
	p.log = append(p.log, fmt.Sprintf("%s\n\t%q", what, a))
	if len(a) != len(b) {
		p.differs = fmt.Sprintf("%s = %q (%v), and on a real server %q (%v)", what, a, err, b, real)
		return
	}
	for i := range a {
		if a[i] != b[i] && !near(a[i], b[i]) {
			p.differs = fmt.Sprintf("%s = %q, and on a real server %q", what, a, b)
			return
		}
	}
}

// flat is a reply as words. Of an error only the first word counts.
func flat(reply any, err error) []string {
	if err != nil && !errors.Is(err, redis.Nil) {
		code, _ := script.ErrorCode(err.Error())
		return []string{"error", strings.TrimPrefix(code, "ERR")}
	}
	switch r := reply.(type) {
	case nil:
		return []string{"nil"}
	case map[any]any: // RESP3
		var all []string
		for k, v := range r {
			all = append(all, flat(k, nil)...)
			all = append(all, flat(v, nil)...)
		}
		return all
	case []any:
		all := []string{"["}
		for _, one := range r {
			all = append(all, flat(one, nil)...)
		}
		return append(all, "]")
	}
	return strings.Fields(fmt.Sprint(reply))
}

// pairs sorts the words of fields, whose order is not told.
func pairs(words []string) []string {
	sorted := slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		return w == "[" || w == "]"
	})
	for i, w := range sorted {
		sorted[i] = strings.TrimPrefix(w, "#")
	}
	slices.Sort(sorted)
	return sorted
}

// near reports whether two numbers may be the same time, read a moment apart, or what a time is
// less than a token counter.
func near(a, b string) bool {
	n, err := strconv.ParseInt(strings.Trim(a, ";$"), 10, 64)
	m, err2 := strconv.ParseInt(strings.Trim(b, ";$"), 10, 64)
	return err == nil && err2 == nil && n-m < 2000 && m-n < 2000 &&
		(min(n, m) > 10000 || max(n, m) < -10000)
}
