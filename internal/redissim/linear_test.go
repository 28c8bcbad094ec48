package redissim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/linear"
	"github.com/holdfast-go/holdfast/locker"
)

// called records a call on something stored, which began at a time and has just returned. One that
// was certainly not executed is no part of the history.
func (w *world) called(op linear.Op, began time.Duration, err error) {
	c := linear.Call{Op: op, Begin: began, End: time.Since(w.net.start)}
	switch {
	case err == nil:
	case errors.Is(err, locker.ErrUnknown) || backend.AnswerOf(err) == backend.Unknown &&
		op.Verb == linear.Write:
		c.Unknown, c.End = true, linear.Never
	default:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
}

// fenced reads and writes what a token of the key protects, in the step that proves the token:
// while it is held, and also when that is long over.
func (c *client) fenced(key string, token uint64) {
	w := c.w
	s, ok := c.nodes[0].(store)
	if !ok || key[0] != 'x' || w.forgets { // a server that forgets has forgotten that as well
		return
	}
	call := func(verb linear.Verb, n int) {
		ctx, cancel := context.WithTimeout(context.Background(), w.ttl)
		defer cancel()
		op := linear.Op{Verb: verb, Key: key, Token: token}
		source, began := "return redis.call('GET', KEYS[1])", time.Since(w.net.start)
		if verb == linear.Write {
			op.Value = int(token%1e9)*10 + n
			source = "redis.call('SET', KEYS[1], ARGV[1])"
		}
		reply, err := s.Fenced(ctx, key, token, source, []string{"{" + key + "}register"},
			[]string{strconv.Itoa(op.Value)})
		if text, ok := reply.(string); ok && verb == linear.Read {
			op.Value, _ = strconv.Atoi(text)
		}
		w.called(op, began, err)
	}
	r := rand.New(rand.NewPCG(w.seed, token))
	if r.IntN(2) == 0 {
		call(linear.Write, 0)
	}
	if r.IntN(3) == 0 {
		call(linear.Read, 0)
	}
	if d := time.Duration(r.Float64() * float64(2*w.ttl)); r.IntN(4) == 0 {
		w.late.Go(func() {
			time.Sleep(d)
			call(linear.Write, 1)
		})
	}
}

const byPorcupine = "porcupine: "

// linear has porcupine judge what [world.judge] does, and what was stored. It is called where time
// is real.
func (w *world) linear() {
	calls := linear.Holds(w.events)
	for _, key := range w.keys {
		for _, err := range linear.Check(linear.LockModel(capacity(key)), of(key, calls)) {
			w.found = append(w.found, byPorcupine+err.Error())
		}
		if w.forgets {
			continue
		}
		for _, err := range linear.Check(linear.RegisterModel(), of(key, w.calls)) {
			w.found = append(w.found, byPorcupine+err.Error())
		}
	}
}

func of(key string, calls []linear.Call) []linear.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(c linear.Call) bool { return c.Key != key })
}
