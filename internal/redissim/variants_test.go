package redissim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// budget is how many seeds a variant is looked for in. Of 30 seeds were found, in this
// order: 25, 4, 5, 9, 13, 21, 21, 29, 10, 26, 26, 22, 3, 10, 5, 4, 4, 9, 17, 17, 13, 9, 10, 6, 14.
const budget = 200

var variants = []variant{
	{
		name: "a held key is taken", kind: "scripts", key: "x1",
		edit: [2]string{`'^h2 (%d+)$'`, `'^h2 (%d+)'`},
	},
	{name: "a release frees whoever holds", kind: "scripts", key: "x1", edit: [2]string{
		`string.find(stored, ' ' .. margin .. ' ' .. id .. ' ', BARE + 1, true) == BARE + 1`,
		`#stored > 20`,
	}},
	{
		name: "a release leaves no tombstone", kind: "scripts",
		edit: [2]string{`lock.tombstoned = true`, `lock.tombs = {ends = 0}`},
	},
	{
		name: "tokens by the clock alone", kind: "scripts", always: stepBack, key: "x1",
		edit: [2]string{`if counter >= least then token = counter + 1 end`, ``},
	},
	{name: "a hand-over without a token of its own", kind: "scripts", key: "x1", edit: [2]string{
		`local token = math.max(counter + 1, us)`, `local token = counter`,
	}},
	{name: "permits over the limit", kind: "scripts", key: "p1", edit: [2]string{
		`lock.weight + claim.weight <= lock.limit`, `lock.weight < lock.limit`,
	}},
	{name: "a reader beside a writer", kind: "scripts", key: "s1", edit: [2]string{
		`if closed or (lock.owner and lock.expires > now) then`,
		`if closed or (lock.owner and lock.expires > now and claim.mode ~= 's') then`,
	}},
	{name: "re-entered by another owner", kind: "scripts", key: "r1", edit: [2]string{
		`return hold and (hold.owner == '' and hold.id or hold.owner) == claim.owner`,
		`return true`,
	}},
	{
		name: "a value saved by who has lost", kind: "scripts", key: "v1",
		edit: [2]string{`if leaves and code == OK then`, `if leaves then`},
	},
	{
		name: "a job leaves no mark", kind: "one", key: "x1",
		edit: [2]string{`if run_token then`, `if false then`},
	},
	{
		name: "a job does not heed the mark", kind: "one", key: "x1",
		edit: [2]string{`if left then return commit(claim.keep, true, {EARLY, left}) end`, ``},
	},
	{name: "a late write that a token does not stop", kind: "scripts", key: "x1", edit: [2]string{
		`if not first or token < first or token > last or token < mark then`, `if false then`,
	}},
	{name: "a lease shorter than was said", kind: "scripts", key: "x1", edit: [2]string{
		`local ends, token, count = now + 1 + lease, nil, 1`,
		`local ends, token, count = now + lease / 2, nil, 1`,
	}},
	{name: "native: no compare", kind: "one", key: "x1", set: without("IFEQ")},
	{
		name: "native: a counter that is not kept", kind: "one", key: "x1", always: stepBack,
		set: soon,
	},
	{
		name: "a cohort hands on what nobody reserved", kind: "scripts", key: "x1",
		always: stepBack,
		backend: func(b backend.Backend) backend.Backend {
			return generous{b}
		},
	},
	{
		name: "the deadline counts from the reply", kind: "one", stops: true, key: "x1",
		backend: func(b backend.Backend) backend.Backend {
			return fromReply{b}
		},
	},
	{
		name: "who withdraws leaves no tombstone", kind: "record", key: "x1",
		backend: func(b backend.Backend) backend.Backend {
			return careless{b}
		},
	},
	{
		name: "a memory that forgot grants at once", kind: "record", key: "x1", always: 4,
		sameLife: true, forgetful: true,
	},
	{
		name: "dialect: a release frees whoever holds", kind: "dialect", key: "x1",
		edit: [2]string{`if owner == id then run('DEL', key)`, `if owner then run('DEL', key)`},
	},
	{
		name: "dialect: taken from a peer", kind: "dialect", key: "x1",
		edit: [2]string{
			`elseif owner then -- 0 ms`,
			`elseif owner and owner == ours then -- 0 ms`,
		},
	},
	{
		name: "a lock is made a HASH while its slot moves", kind: "cluster", key: "x1", always: 6,
		moves: true, edit: [2]string{
			`string.find(reply.err, 'non local key', 1, true)`, `false`,
		},
	},
	{name: "no guard", kind: "failover", sameLife: true, key: "x1", always: 7},
	{name: "no grace", kind: "failover", key: "x1", always: 7, edit: [2]string{
		`local rest = since + grace - now`, `local rest = 0`,
	}},
	{
		name: "a node that forgot grants at once", kind: "quorum", key: "x1", always: 1,
		forgetful: true, edit: [2]string{
			`local rest = since + grace - now`, `local rest = 0`,
		},
	},
	{name: "majorities that do not meet", kind: "quorum", key: "x1", minority: true},
}

// without has a native command lack an option and its argument.
func without(option string) func([]string) []string {
	return func(words []string) []string {
		if i := slices.Index(words, option); i > 0 {
			return slices.Delete(slices.Clone(words), i, i+2)
		}
		return words
	}
}

// soon has what a native release leaves be over at once.
func soon(words []string) []string {
	if i := slices.Index(words, "PXAT"); i > 0 {
		words = slices.Clone(words)
		words[i], words[i+1] = "PX", "1"
	}
	return words
}

// A generous backend says that it has reserved more tokens than it has.
type generous struct{ backend.Backend }

func (g generous) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	c.Reserve = 0
	grant, err := g.Backend.TryAcquire(ctx, c)
	grant.Reserved = 9
	return grant, err
}

// A careless backend takes no attempt for one that may be in flight.
type careless struct{ backend.Backend }

func (b careless) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	c.NoneInFlight = true
	return b.Backend.Release(ctx, c)
}

func (b careless) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	claims = slices.Clone(claims)
	for i := range claims {
		claims[i].NoneInFlight = true
	}
	return b.Backend.ReleaseAll(ctx, claims)
}

// fromReply makes the locker count its deadline from the reply.
type fromReply struct{ backend.Backend }

func (f fromReply) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	sent := time.Now()
	g, err := f.Backend.TryAcquire(ctx, c)
	g.TTL = max(g.TTL, c.TTL) + time.Since(sent)
	return g, err
}

// edited is a script without the safeguard.
func (v variant) edited(source string) string {
	if v.edit[0] == "" {
		return source
	}
	return strings.ReplaceAll(source, v.edit[0], v.edit[1])
}

// TestVariants removes one safeguard at a time, which must show within its budget of seeds.
//
// covers: B1, K3, D3
func TestVariants(t *testing.T) {
	few := variants
	if testing.Short() || raceEnabled {
		few = few[:3]
	}
	for _, v := range few {
		t.Run(v.name, func(t *testing.T) {
			k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == v.kind })]
			if v.edit[0] != "" && !slices.ContainsFunc(sources, func(s string) bool {
				return v.edited(s) != s
			}) {
				t.Fatalf("no script has %q", v.edit[0])
			}
			n := budget
			if *rates > 0 {
				n = *rates
			}
			var mu sync.Mutex
			tried, found, porcupines, what := 0, 0, 0, ""
			began := time.Now()
			each(t, n, func(t *testing.T, seed uint64) bool {
				w := run(t, k, seed, v)
				mu.Lock()
				defer mu.Unlock()
				tried++
				if len(w.found) > 0 {
					if found++; found == 1 {
						what, _, _ = strings.Cut(w.found[0], "\n")
					}
					if slices.ContainsFunc(w.found, func(f string) bool {
						return strings.HasPrefix(f, byPorcupine)
					}) {
						porcupines++
					}
				}
				return found == 0 || *rates > 0
			})
			t.Logf("found in %d of %d seeds, %d of them by porcupine, %v: %s", found, tried,
				porcupines, time.Since(began).Round(time.Millisecond), what)
			if found == 0 {
				t.Errorf("not found in %d seeds", tried)
			}
		})
	}
}
