package generations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend" // redis://
	_ "github.com/holdfast-go/holdfast/redlock"      // redlock://
)

// patience bounds one side of a scenario. Only one that goes wrong takes so long.
const patience = 2 * time.Minute

// A stage is what all scenarios are played on.
type stage struct {
	t      testing.TB     // what servers are started with
	server *redis.Options // the one Redis of the first six
	url    string         // the same for holdfast
	ttl    time.Duration  // of holdfast's leases

	unguarded bool // for a test: the last two without max_ttl
}

// A scene is one side of a scenario while it is played. Its methods end it when something comes
// otherwise than the story tells.
type scene struct {
	*stage
	ctx     context.Context
	undo    []func()
	nodes   []*testserver.Server // of its own; none on the one Redis
	primary int                  // of them
	clients []*redis.Client      // of the nodes, or of the one Redis
	guarded bool                 // holdfast's URLs have max_ttl
	parties map[string]*party
	grants  []*locker.Guard[struct{}] // in their order
}

// unexpected is how a scene ends early.
type unexpected string

// play runs one side. Its outcome is the expected one, or what was unexpected.
func (st *stage) play(ctx context.Context, servers string, story Side,
	tell func(string, ...any),
) (played Side) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := &scene{stage: st, ctx: ctx, parties: map[string]*party{}}
	played = Side{Outcome: story.Outcome, AsExpected: true}
	defer func() {
		for _, f := range slices.Backward(s.undo) { // what the story has left, last first
			f()
		}
	}()
	defer func() {
		switch why := recover().(type) {
		case nil:
		case unexpected:
			played.AsExpected, played.Outcome = false, string(why)
		default:
			panic(why)
		}
	}()
	s.start(servers)
	for _, step := range story.Steps {
		got := s.do(step)
		did := strings.ReplaceAll(step.Did, "max_ttl is 2s", "max_ttl is "+s.ttl.String())
		played.Steps = append(played.Steps, Step{step.Who, did, got})
		tell("     %s", strings.TrimRight(fmt.Sprintf("%-2s %-62s %s", step.Who, did, got), " "))
		// Redis rounds; some of the 30 s are over by now.
		if got != step.Got && (step.Got != "30" || got != "29") {
			panic(unexpected(fmt.Sprintf("%s's %s: %s, and not %s",
				step.Who, step.Did, got, step.Got)))
		}
	}
	return played
}

// later has f undo something when the scene is over.
func (s *scene) later(f func()) { s.undo = append(s.undo, f) }

// must ends the scene unless err is nil.
func (s *scene) must(what string, err error) {
	if err != nil {
		panic(unexpected(fmt.Sprintf("%s: %v", what, err)))
	}
}

// resource is the key of the stories on the one Redis.
const resource = "key_resource_id"

// start starts the servers of the story, if they are not the one Redis. There the key is the
// scene's: it ends if the key is there already, which is deleted when it is over.
func (s *scene) start(servers string) {
	switch servers {
	case "a primary and its replica":
		primary := testserver.Redis(s.t, testserver.WithArgs("--repl-diskless-sync-delay", "0"))
		replica := testserver.Redis(s.t,
			testserver.WithArgs("--replicaof", "127.0.0.1", fmt.Sprint(primary.Port())))
		s.nodes = []*testserver.Server{primary, replica}
		for synced := false; !synced; s.pause(s.ttl / 100) {
			info, err := replica.Do("INFO", "replication")
			s.must("the replica", err)
			s.must("the replica does not get in sync", s.ctx.Err())
			synced = strings.Contains(fmt.Sprint(info), "master_link_status:up")
		}
	case "five nodes":
		s.nodes = testserver.Redises(s.t, 5)
	default:
		rdb := s.client(s.server)
		n, err := rdb.Exists(s.ctx, resource).Result()
		s.must("look whether the key is free", err)
		if n > 0 {
			panic(unexpected("the key " + resource + " is there already, and is not touched"))
		}
		s.later(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), time.Second)
			defer cancel()
			_ = rdb.Del(ctx, resource).Err()
		})
	}
	for _, n := range s.nodes { // which are not waited for when they are down
		s.client(&redis.Options{Addr: n.Addr(), MaxRetries: -1, DialerRetries: 1})
	}
}

// client adds a client until the end of the scene.
func (s *scene) client(o *redis.Options) *redis.Client {
	rdb := redis.NewClient(o)
	s.clients = append(s.clients, rdb)
	s.later(func() { _ = rdb.Close() })
	return rdb
}

// do does a step, and returns what came of it. It is an event of the table below, what holdfast
// does for a party, a Redis command that a client library sends, also behind a colon, or else only
// told.
func (s *scene) do(step Step) (got string) {
	if event := events[step.Did]; event != nil {
		event(s, step.Who)
		return step.Got
	}
	verb, key, _ := strings.Cut(step.Did, " ")
	if act := verbs[verb]; act != nil {
		return act(s.party(step.Who), key, step.Got)
	}
	_, behind, _ := strings.Cut(step.Did, ": ")
	for _, command := range []string{step.Did, behind} {
		if name, _, _ := strings.Cut(command, " "); name != "" &&
			strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			if got = s.command(command); step.Got == "" && step.Who == "" {
				return "" // that time passes is not somebody's command
			}
			return got
		}
	}
	return step.Got
}

// command sends a command and returns the reply as people read it; of five nodes each one's, in
// their order, as the Redlock text says.
func (s *scene) command(line string) string {
	line, quorum := strings.CutSuffix(line, " on 1, 2, 3, 4, 5")
	var args []any
	for _, a := range strings.Fields(line) {
		if script := watchdog[a]; script != "" {
			a = script
		}
		args = append(args, a)
	}
	reply := func(rdb *redis.Client) string {
		v, err := rdb.Do(s.ctx, args...).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return "nil"
		case err != nil && quorum:
			return "down"
		case err != nil:
			return "error: " + err.Error()
		}
		return fmt.Sprint(v)
	}
	if !quorum {
		return reply(s.clients[s.primary])
	}
	var replies []string
	locked := 0
	for _, rdb := range s.clients {
		replies = append(replies, reply(rdb))
		if replies[len(replies)-1] == "OK" {
			locked++
		}
	}
	got := fmt.Sprintf("%s: %d of 5", strings.Join(replies, ", "), locked)
	if locked >= 3 {
		got += ", locked"
	}
	return got
}

// What Redisson's watchdog sends: it keeps a hash of holders and counts, with a lease of 30 s,
// which it renews every 10 s.
var watchdog = map[string]string{
	"lock.lua": `if redis.call('exists', KEYS[1]) == 0 or ` +
		`redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end
return redis.call('pttl', KEYS[1])`,
	"renew.lua": `if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then ` +
		`return redis.call('pexpire', KEYS[1], ARGV[1]) end return 0`,
}

// events are steps that are more than a command.
var events = map[string]func(s *scene, who string){
	"60 times, every 10s: EVAL renew.lua …": func(s *scene, _ string) {
		for range 60 { // ten minutes, each round 10 s that pass and a renewal
			s.command("PEXPIRE " + resource + " 20000")
			got := s.command("EVAL renew.lua 1 " + resource + " 30000 uuid:thread-1")
			if got != "1" {
				panic(unexpected("the watchdog's renewal: " + got + ", and not 1"))
			}
		}
	},
	"crashes": func(s *scene, who string) { s.party(who).cut.Store(true) },
	"is cut off from Redis for longer than its TTL": func(s *scene, who string) {
		s.party(who).cut.Store(true)
	},
	"reaches Redis again, and releases": func(s *scene, who string) {
		s.party(who).cut.Store(false)
	},
	"works for longer than its TTL": func(s *scene, who string) {
		g := s.party(who).held
		later := g.Until().Add(s.ttl)
		for g.Until().Before(later) && s.ctx.Err() == nil && g.Context().Err() == nil {
			s.pause(s.ttl / 20)
		}
	},
	"the fencing token is higher than that of the hold before": func(s *scene, _ string) {
		n := len(s.grants)
		before, last := s.grants[n-2].Hold().Token, s.grants[n-1].Hold().Token
		if last <= before {
			panic(unexpected(fmt.Sprintf("the fencing token is %d, and was %d before",
				last, before)))
		}
	},
	// A server that meets the guard for the first time grants nothing for as long as one that has
	// forgotten, so a lock is taken once.
	"max_ttl is 2s, and the server has been in use for longer": func(s *scene, _ string) {
		s.guarded = true
		g, err := s.party("A").locks.Lock(s.ctx, "set up")
		s.must("the first lock of a new server", err)
		s.must("the first unlock of a new server", g.Unlock())
		if len(s.nodes) == 2 {
			s.must("the replica has what was set up",
				s.clients[0].Do(s.ctx, "WAIT", "1", "0").Err())
		}
	},
	// The replica keeps what it has, and follows a primary that is not there.
	"the link between primary and replica breaks": func(s *scene, _ string) {
		s.must("cut the replica", s.clients[1].Do(s.ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	},
	"the primary crashes, before it could send that to the replica": func(s *scene, _ string) {
		s.nodes[0].Kill()
		s.primary = 1
	},
	"the replica is promoted: REPLICAOF NO ONE": func(s *scene, _ string) {
		s.must("promote the replica", s.clients[1].Do(s.ctx, "REPLICAOF", "NO", "ONE").Err())
	},
	"nodes 4 and 5 are down": func(s *scene, _ string) {
		s.nodes[3].Kill()
		s.nodes[4].Kill()
	},
	"nodes 4 and 5 are up again": func(s *scene, _ string) {
		s.nodes[3].Restart()
		s.nodes[4].Restart()
	},
	"node 3 crashes, and restarts without its data": func(s *scene, _ string) {
		s.nodes[2].Restart()
	},
}

// pause waits for d, or until the scene has to end.
func (s *scene) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

// A party is a process that locks by holdfast.
type party struct {
	*scene
	backend.Backend // to which nothing that keeps or gives back a hold arrives while it is cut off
	cut             atomic.Bool
	locks           *locker.Client[struct{}]
	held            *locker.Guard[struct{}] // the last that it was granted
}

// errCut is what a request ends with that does not arrive.
var errCut = errors.New("cut off from the store")

func (p *party) Renew(ctx context.Context, c backend.Claim) error {
	if p.cut.Load() {
		return errCut
	}
	return p.Backend.Renew(ctx, c)
}

func (p *party) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	if p.cut.Load() {
		return backend.Released{}, errCut
	}
	return p.Backend.Release(ctx, c)
}

func (p *party) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if p.cut.Load() {
		return nil, errCut
	}
	return p.Backend.ReleaseAll(ctx, claims)
}

// party is the process with that name, until the scene is over.
func (s *scene) party(name string) *party {
	if p := s.parties[name]; p != nil {
		return p
	}
	b, err := backend.Open(s.ctx, s.storeURL())
	s.must("holdfast opens its store", err)
	p := &party{scene: s, Backend: b}
	p.locks, err = locker.New(p, locker.Bare, locker.Config{
		TTL: s.ttl, ReleaseTimeout: time.Second, Service: name,
		Logger: slog.New(slog.DiscardHandler),
	})
	s.must("holdfast", err)
	s.later(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), time.Second)
		defer cancel()
		p.cut.Store(false)
		if p.held != nil {
			_ = p.held.Unlock()
		}
		_ = p.locks.Shutdown(ctx)
		_ = b.Close()
	})
	s.parties[name] = p
	return p
}

// storeURL is holdfast's store at this time of the story.
func (s *scene) storeURL() string {
	if len(s.nodes) == 0 {
		return s.url
	}
	quorum := url.Values{}
	for _, n := range s.nodes {
		node := n.URL()
		if s.guarded && !s.unguarded {
			node += "?max_ttl=" + s.ttl.String()
		}
		quorum.Add("node", node)
	}
	if nodes := quorum["node"]; len(nodes) == 2 {
		return nodes[s.primary]
	}
	return "redlock://?" + quorum.Encode()
}

// verbs are what parties do with a key: each returns what came of it, which is want if all is well.
var verbs = map[string]func(p *party, key, want string) string{
	"TryLock": func(p *party, key, want string) string {
		var opts []locker.Option
		key, limited := strings.CutPrefix(key, "with MaxHold ")
		if limited {
			opts = append(opts, locker.MaxHold(p.ttl))
		}
		g, err := p.locks.TryLock(p.ctx, key, opts...)
		return p.got(g, err, "granted", want)
	},
	"Lock": func(p *party, key, want string) string {
		g, err := p.locks.Lock(p.ctx, key)
		return p.got(g, err, "waits, and is granted", want)
	},
	"Check":  func(p *party, _, want string) string { return outcome(p.held.Check(p.ctx), want) },
	"Unlock": func(p *party, _, want string) string { return outcome(p.held.Unlock(), want) },
	"Value": func(p *party, _, want string) string { // without asking anybody
		_, err := p.held.Value()
		return outcome(err, want)
	},
	"Do": func(p *party, key, _ string) (how string) {
		defer func() { how = fmt.Sprint("the panic goes on: ", recover()) }()
		key, _, _ = strings.Cut(key, ":")
		err := locker.Do(p.ctx, p.locks, key, func(context.Context, struct{}) error {
			panic("bad data")
		})
		return fmt.Sprint(err)
	},
}

// got keeps a guard that was granted.
func (p *party) got(g *locker.Guard[struct{}], err error, granted, want string) string {
	if err != nil {
		return outcome(err, want)
	}
	p.held, p.grants = g, append(p.grants, g)
	return granted
}

// outcome is an error as the stories name it.
func outcome(err error, want string) string {
	if err == nil {
		return "nil"
	}
	for _, known := range []error{
		backend.ErrHeld, backend.ErrQuarantined, locker.ErrNotAcquired, locker.ErrLost,
		locker.ErrMaxHold,
	} {
		if errors.Is(err, known) && known.Error() == want {
			return want
		}
	}
	return err.Error()
}
