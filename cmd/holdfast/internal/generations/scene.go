package generations

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/testserver"
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
	ctx  context.Context
	tell func(format string, a ...any)
	side Side
	undo []func()
}

// unexpected is how a scene ends early.
type unexpected string

// play runs one side. Its outcome is good, or what was unexpected.
func (st *stage) play(ctx context.Context, story func(*scene), good string, tell func(string, ...any)) Side {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := &scene{stage: st, ctx: ctx, tell: tell, side: Side{Outcome: good, AsExpected: true}}
	s.end(story)
	return s.side
}

// end runs the story, and then undoes what it has left, last first.
func (s *scene) end(story func(*scene)) {
	defer func() {
		for _, f := range slices.Backward(s.undo) {
			f()
		}
	}()
	defer func() {
		switch why := recover().(type) {
		case nil:
		case unexpected:
			s.side.AsExpected, s.side.Outcome = false, string(why)
		default:
			panic(why)
		}
	}()
	story(s)
}

// later has f undo something when the scene is over.
func (s *scene) later(f func()) { s.undo = append(s.undo, f) }

// did tells a step.
func (s *scene) did(who, did, got string) {
	s.side.Steps = append(s.side.Steps, Step{who, did, got})
	s.tell("     %s", strings.TrimRight(fmt.Sprintf("%-2s %-62s %s", who, did, got), " "))
}

// must ends the scene unless err is nil.
func (s *scene) must(what string, err error) {
	if err != nil {
		panic(unexpected(fmt.Sprintf("%s: %v", what, err)))
	}
}

// want ends the scene unless what came is what the story tells.
func (s *scene) want(what, got, want string) {
	if got != want {
		panic(unexpected(fmt.Sprintf("%s: %s, and not %s", what, got, want)))
	}
}

// redis returns a client of the one Redis. The keys are the scene's: it ends if one of them is
// there already, and they are deleted when it is over.
func (s *scene) redis(keys ...string) *redis.Client {
	rdb := s.clientOf(s.server)
	n, err := rdb.Exists(s.ctx, keys...).Result()
	s.must("look whether the keys are free", err)
	if n > 0 {
		panic(unexpected(fmt.Sprintf("one of the keys %s is there already, and is not touched", strings.Join(keys, ", "))))
	}
	s.later(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), time.Second)
		defer cancel()
		_ = rdb.Del(ctx, keys...).Err()
	})
	return rdb
}

// clientOf returns a client until the end of the scene.
func (s *scene) clientOf(o *redis.Options) *redis.Client {
	rdb := redis.NewClient(o)
	s.later(func() { _ = rdb.Close() })
	return rdb
}

// node returns a client of one server that does not wait for it when it is down.
func (s *scene) node(srv *testserver.Server) *redis.Client {
	return s.clientOf(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, DialerRetries: 1})
}

// command has somebody send a command by a client library, and get the reply that the story tells.
func (s *scene) command(who string, rdb *redis.Client, want string, args ...any) {
	did := strings.TrimSuffix(fmt.Sprintln(args...), "\n")
	got := reply(rdb.Do(s.ctx, args...).Result())
	s.did(who, did, got)
	s.want(who+"'s "+did, got, want)
}

// reply is a reply as people read it.
func reply(v any, err error) string {
	switch {
	case err == redis.Nil: //nolint:errorlint // go-redis returns it as it is
		return "nil"
	case err != nil:
		return "error: " + err.Error()
	}
	return fmt.Sprint(v)
}

// pass ends the lease of a key, as Redis does when its time is over.
func (s *scene) pass(rdb *redis.Client, how, key string) {
	s.did("", how+" pass: PEXPIRE "+key+" 0", "")
	s.must("end the lease", rdb.Do(s.ctx, "PEXPIRE", key, 0).Err())
}
