package generations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend" // redis://
	_ "github.com/holdfast-go/holdfast/redlock"      // redlock://
)

// A party is a process that locks by holdfast.
type party struct {
	*scene
	name  string
	link  *link
	locks *locker.Client[struct{}]
}

type guard = locker.Guard[struct{}]

// errCut is what a request ends with that does not arrive.
var errCut = errors.New("cut off from the store")

// A link is the way to a store. While it is cut nothing that keeps or gives back a hold arrives.
type link struct {
	backend.Backend
	cut atomic.Bool
}

func (l *link) Renew(ctx context.Context, c backend.Claim) error {
	if l.cut.Load() {
		return errCut
	}
	return l.Backend.Renew(ctx, c)
}

func (l *link) Release(ctx context.Context, c backend.Claim) error {
	if l.cut.Load() {
		return errCut
	}
	return l.Backend.Release(ctx, c)
}

// party opens the store at url for a process of its own, until the scene is over.
func (s *scene) party(name, url string) *party {
	b, err := backend.Open(s.ctx, url)
	s.must("holdfast opens its store", err)
	p := &party{scene: s, name: name, link: &link{Backend: b}}
	p.locks, err = locker.New(p.link, locker.Bare, locker.Config{
		TTL: s.ttl, ReleaseTimeout: time.Second, Service: name, Logger: slog.New(slog.DiscardHandler),
	})
	s.must("holdfast", err)
	s.later(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), time.Second)
		defer cancel()
		_ = p.locks.Shutdown(ctx)
		_ = b.Close()
	})
	return p
}

// tries is a TryLock that is granted.
func (p *party) tries(key string) *guard {
	g, err := p.locks.TryLock(p.ctx, key)
	p.must(p.name+"'s TryLock", err)
	return p.got(g, "TryLock", key, "granted")
}

// waits is a Lock that is granted when it is time.
func (p *party) waits(key string) *guard {
	g, err := p.locks.Lock(p.ctx, key)
	p.must(p.name+"'s Lock", err)
	return p.got(g, "Lock", key, "waits, and is granted")
}

func (p *party) got(g *guard, verb, key, how string) *guard {
	p.later(func() { _ = g.Unlock() })
	p.did(p.name, verb+" "+key, how)
	return g
}

// refused is a TryLock that fails because of why.
func (p *party) refused(key string, why error) {
	g, err := p.locks.TryLock(p.ctx, key)
	if err == nil {
		_ = g.Unlock()
	}
	p.is("TryLock "+key, err, why)
}

// crashes has p's requests arrive no more.
func (p *party) crashes(how string) {
	p.link.cut.Store(true)
	p.later(func() { p.link.cut.Store(false) })
	p.did(p.name, how, "")
}

// resumes undoes crashes.
func (p *party) resumes(how string) {
	p.link.cut.Store(false)
	p.did(p.name, how, "")
}

// has is what p knows of g at this moment, without asking anybody: why it does not hold any more.
func (p *party) has(g *guard, why error) {
	_, err := g.Value()
	p.is("Value", err, why)
}

// holds checks with the store that p holds g.
func (p *party) holds(g *guard) { p.is("Check", g.Check(p.ctx), nil) }

// unlocks ends g, with an error that is want.
func (p *party) unlocks(g *guard, want error) { p.is("Unlock", g.Unlock(), want) }

// is tells what p did, and that it ended with an error that is want.
func (p *party) is(did string, err, want error) {
	got, told := "nil", fmt.Sprint(want)
	if want == nil {
		told = got
	}
	switch {
	case err != nil && want != nil && errors.Is(err, want):
		got = told
	case err != nil:
		got = err.Error()
	}
	p.did(p.name, did, got)
	p.want(p.name+"'s "+did, got, told)
}
