package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var contextRules = []rule{
	{
		name: "context/done", run: doneContext,
		why: "A verb under a ctx that is done says so, with an error that is ctx.Err(), and " +
			"promptly. (redsync says ErrFailed," +
			" redsync#164; a cause alone hides context.Canceled.)",
	},
	{
		name: "context/unknown", run: doneIsUnknown,
		why: "A verb whose ctx ended is an unknown answer, never a no: nothing may be taken for " +
			"definite that was not answered.",
	},
	{
		name: "context/undone", run: doneIsUndone,
		why: "What a cancelled attempt may have done is undone by Release of the same claim " +
			"(open-match#1578, ncps#913 and" +
			" blnk#355 left the lock for its TTL).",
	},
	{
		name: "context/sweep", run: cancelledMidway, slow: true,
		why: "A ctx may end at any moment of a request. Whenever it does, repeating or releasing " +
			"the claim settles it.",
	},
	{
		name: "context/of-the-call", run: contextOfTheCall,
		why: "ctx bounds the call, not the hold: the end of the ctx that an attempt was made " +
			"with must not end its lease.",
	},
}

var errWhy = errors.New("the user went away")

// done returns contexts that have ended, each in another way.
func done() map[string]context.Context {
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(errWhy)
	late, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	stop()
	return map[string]context.Context{"cancelled": cancelled, "late": late}
}

// verbs are calls of each verb on b for c.
func (e *env) verbs(b backend.Backend, c backend.Claim) map[string]func(context.Context) error {
	verbs := map[string]func(context.Context) error{
		"TryAcquire": func(ctx context.Context) error {
			_, err := b.TryAcquire(ctx, c)
			return err
		},
		"Renew":   func(ctx context.Context) error { return b.Renew(ctx, c) },
		"Release": func(ctx context.Context) error { return release(ctx, b, c) },
	}
	if e.caps.Watch {
		verbs["Watch"] = func(ctx context.Context) error { _, err := b.Watch(ctx, c); return err }
	}
	if e.caps.Inspect {
		verbs["Inspect"] = func(ctx context.Context) error {
			_, err := b.Inspect(ctx, c.Key)
			return err
		}
	}
	return verbs
}

// covers: A5, C5
func doneContext(e *env) {
	a := e.open()
	e.cycle(a, e.key("first")) // what a backend does once is done
	for how, ctx := range done() {
		for verb, call := range e.verbs(a, e.claim(e.key("k"))) {
			start := time.Now()
			err := call(ctx)
			e.is(verb+" under a ctx that is "+how, err, ctx.Err())
			if took := time.Since(start); took > patience/2 {
				e.Errorf("%s under a ctx that is %s took %v", verb, how, took)
			}
		}
	}
}

func doneIsUnknown(e *env) {
	a := e.open()
	e.cycle(a, e.key("first"))
	for how, ctx := range done() {
		for verb, call := range e.verbs(a, e.claim(e.key("k"))) {
			err := call(ctx)
			if answer := backend.AnswerOf(err); answer == backend.Yes || backend.Refused(err) ||
				answer == backend.No && !errors.Is(err, backend.ErrUnavailable) {
				e.Errorf("%s under a ctx that is %s = %v, which looks like an answer", verb, how,
					err)
			}
		}
	}
}

// covers: A5, C5, A2
func doneIsUndone(e *env) {
	a, b := e.open(), e.open()
	for _, ctx := range done() {
		key := e.key("k")
		c := e.claim(key)
		if _, err := a.TryAcquire(ctx, c); err == nil {
			e.Error("TryAcquire under a done ctx was granted")
		}
		if _, err := a.Release(e.ctx, c); err != nil && !errors.Is(err, backend.ErrLost) {
			e.Errorf("Release of a cancelled attempt = %v, want nil or ErrLost", err)
		}
		e.tombstoned(b, c)
		e.free(b, key)

		holder := e.claim(key)
		e.acquire(a, holder)
		_ = a.Renew(ctx, holder)
		_, _ = a.Release(ctx, holder)
		if _, err := a.Release(e.ctx, holder); err != nil && !errors.Is(err, backend.ErrLost) {
			e.Errorf("Release after one under a done ctx = %v, want nil, or ErrLost if the "+
				"first was executed", err)
		}
		e.free(b, key)
	}
}

// cancelledMidway lets ctx end at moments that sweep over the time that an attempt takes.
//
// covers: A5, W7, X11
func cancelledMidway(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.cycle(a, key)
	start := time.Now()
	e.cycle(a, key)
	span := max(2*time.Since(start), 200*time.Microsecond)
	const points = 60
	for i := range points {
		ctx, cancel := context.WithTimeout(e.ctx, span*time.Duration(i)/points)
		c := e.claim(key)
		_, err := a.TryAcquire(ctx, c)
		cancel()
		switch {
		case err == nil && i%2 == 0: // the grant was in time: a repeat is the same
			if _, err := b.TryAcquire(e.ctx, c); err != nil {
				e.Errorf("repeat of a grant = %v", err)
			}
		case err != nil && i%2 == 0: // resolved by repeating: granted now, before, or both
			if _, err := b.TryAcquire(e.ctx, c); err != nil {
				e.Errorf("repeat of an unanswered attempt on a free key = %v, want a grant", err)
			}
		}
		if _, err := b.Release(e.ctx, c); err != nil && !errors.Is(err, backend.ErrLost) {
			e.Errorf("Release = %v", err)
		}
		e.tombstoned(a, c)
		e.free(b, key)
	}
}

func contextOfTheCall(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	ctx, cancel := context.WithCancel(e.ctx)
	c := e.claim(key)
	e.forget(a, c)
	if _, err := a.TryAcquire(ctx, c); err != nil {
		e.Fatalf("TryAcquire = %v", err)
	}
	if err := a.Renew(ctx, c); err != nil {
		e.Fatalf("Renew = %v", err)
	}
	cancel()
	e.held(b, e.claim(key))
	e.release(a, c)
}
