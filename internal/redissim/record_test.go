package redissim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/internal/simstore"
)

// records are what a server keeps that is no Redis: backend/record, as mem:// and file:// do, or a
// memory that counts its tokens as etcd does, which is a node of a quorum.
type records interface {
	Capabilities() backend.Capabilities
	Validate(c backend.Claim) error
	Acquire(c backend.Claim) (backend.Grant, error)
	Renew(c backend.Claim) error
	Release(c backend.Claim) (backend.Released, error)
	Heartbeat(claims []backend.Claim) []error
	ReleaseAll(claims []backend.Claim) []error
	Watch(ctx context.Context, c backend.Claim) <-chan backend.Wake
	Inspect(key string) backend.State
	Saved(key string) []byte
	Record(key string) record.Record
}

// ran is a clock without a date, as that of a process.
func (s *server) ran() time.Time {
	return time.Unix(1000, 0).Add(time.Duration(float64(time.Since(s.origin)) * s.rate))
}

// reopen replaces the store by one that reads what the other had of each key: all of it, as a file
// has it; or what outlives a reboot, and then it grants nothing until every hold that it cannot
// know of is over.
func (s *server) reopen(d time.Duration, forgets bool) {
	w := s.w
	cfg := simstore.Config{Now: s.ran}
	if forgets && !w.v.sameLife {
		cfg.Quarantine = w.ttl + w.ttl/50 // the clock may be as much quicker as its holders'
	}
	next := simstore.New(cfg)
	for _, key := range w.keys {
		r := s.records.Record(key)
		if forgets {
			r = r.Lasting()
		}
		next.Load(key, r)
	}
	w.net.note("server %d is opened again, and has forgotten: %v", s.index, forgets)
	s.records, s.released = next, map[string]time.Duration{}
	s.lives++
	s.down = true
	s.cutRecords()
	w.net.at(time.Now().Add(d), func() { s.down = false })
}

// cutRecords ends the watches.
func (s *server) cutRecords() {
	for _, broken := range s.watches {
		close(broken)
	}
	s.watches = nil
}

// A remote is a client's connection to a server that keeps records.
type remote struct {
	backend.Base
	l link
}

func (m remote) server() *server { return m.l.to[0] }

func (m remote) ask(ctx context.Context, name, id string,
	f func(*server) (any, error),
) (any, error) {
	reply, err := m.l.do(ctx, m.server(), name, id, f)
	if m.l.Explain(err).Unsent {
		err = fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return reply, err
}

func (m remote) Capabilities() backend.Capabilities { return m.server().capabilities }

func (m remote) Identity(ctx context.Context) (string, error) {
	_, err := m.ask(ctx, "IDENTITY", "", func(*server) (any, error) { return nil, nil })
	return "etcd", err
}

func (m remote) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if err := c.Validate(m.Capabilities()); err != nil {
		return backend.Grant{}, err
	}
	g, err := m.ask(ctx, fmt.Sprint("ACQUIRE ", c.Key, " ", c.Mode, c.Limit, c.Weight, c.Queue,
		c.Load, c.NotBefore), c.ID(), func(s *server) (any, error) {
		g, err := s.records.Acquire(c)
		s.executed("ACQUIRE", c.ID(), err == nil)
		return g, err
	})
	grant, _ := g.(backend.Grant)
	return grant, err
}

func (m remote) Renew(ctx context.Context, c backend.Claim) error {
	_, err := m.ask(ctx, "RENEW "+c.Key, c.ID(), func(s *server) (any, error) {
		return nil, s.records.Renew(c)
	})
	return err
}

func (m remote) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	told, err := m.ask(ctx, fmt.Sprint("RELEASE ", c.Key, c.NoneInFlight), c.ID(),
		func(s *server) (any, error) {
			s.executed("RELEASE", c.ID(), true)
			return s.records.Release(c)
		})
	if err != nil {
		return backend.Released{}, err
	}
	return told.(backend.Released), nil
}

func (m remote) Inspect(ctx context.Context, key string) (backend.State, error) {
	state, err := m.ask(ctx, "INSPECT "+key, "", func(s *server) (any, error) {
		return s.records.Inspect(key), nil
	})
	known, _ := state.(backend.State)
	return known, err
}

func (m remote) Saved(ctx context.Context, key string) ([]byte, error) {
	saved, err := m.ask(ctx, "SAVED "+key, "", func(s *server) (any, error) {
		return s.records.Saved(key), nil
	})
	text, _ := saved.([]byte)
	return text, err
}

func (m remote) Heartbeat(ctx context.Context, claims []backend.Claim) ([]error, error) {
	errs, err := m.ask(ctx, fmt.Sprint("HEARTBEAT ", claims[0].Key, len(claims)), claims[0].ID(),
		func(s *server) (any, error) {
			return s.records.Heartbeat(claims), nil
		})
	answers, _ := errs.([]error)
	return answers, err
}

func (m remote) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	errs, err := m.ask(ctx, fmt.Sprint("RELEASEALL ", claims[0].Key, len(claims)), claims[0].ID(),
		func(s *server) (any, error) {
			for i := range claims {
				s.executed("RELEASE", claims[i].ID(), true)
			}
			return s.records.ReleaseAll(claims), nil
		})
	answers, _ := errs.([]error)
	return answers, err
}

// Watch has what is told go through the network.
func (m remote) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	out := make(chan backend.Wake, 1)
	w := m.l.c.w
	_, err := m.ask(ctx, "WATCH "+c.Key, c.ID(), func(s *server) (any, error) {
		// closed: only the network's goroutine looks.
		in, broken, closed := s.records.Watch(ctx, c), make(chan struct{}), false
		s.watches = append(s.watches, broken)
		told := func(name string, f func()) {
			w.net.submit(m.l.named(name+" "+c.Key), "", c.ID(), func(r *rand.Rand) {
				w.net.at(m.l.c.awakeAt(time.Now().Add(w.delay(r))), func() {
					if !closed {
						f()
					}
				})
			})
		}
		go func() {
			for {
				select {
				case wake := <-in:
					told("WAKE", func() {
						select {
						case out <- wake:
						default:
						}
					})
				case <-broken:
					told("WATCH ENDS", func() { closed = true; close(out) })
					return
				case <-ctx.Done():
					return
				}
			}
		}()
		return nil, nil
	})
	return out, err
}

func (m remote) Close() error { return nil }

func (m remote) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	return backend.ForceReleaseBy(ctx, m, key, token)
}

// recordFault is what befalls a server that keeps records.
func (s *server) recordFault(what int, long time.Duration, lost float64) {
	switch {
	case what < 3:
		s.paused = time.Now().Add(long)
		s.w.net.note("server %d pauses for %v", s.index, long)
	case what < 6:
		s.reopen(long/4, s.w.forgets && lost < 0.7)
	case what == 6:
		s.cutRecords()
		s.w.net.note("server %d ends all watches", s.index)
	default:
		s.paused = time.Now().Add(long / 10)
	}
}

var _ = errors.Is
