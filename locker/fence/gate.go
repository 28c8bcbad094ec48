package fence

import (
	"context"
	"sync"
)

// A Gate orders operations on what this process has by the tokens that they come with,
// for each key by itself. The zero Gate is ready for use, and safe for concurrent use. It must not
// be copied. It keeps a few words for each key that it has seen, and forgets all when the process
// ends: what outlives the process needs a gate that does, such as [Admit].
type Gate struct {
	mu   sync.Mutex
	keys map[string]*passage
}

// A passage is the state of one key.
type passage struct {
	newest  uint64        // that came
	running int           // how many are inside, all with one token
	token   uint64        // theirs
	idle    chan struct{} // closed when the last of them has left; nil if nobody waits for it
}

// Admit runs apply if token is not older than any that came to key before, and returns its error.
// Else it returns an [ErrStale], and apply does not run. apply may be nil, to announce a token
// ahead of a read elsewhere.
//
// Admit first marks the token, so that older ones are refused from then on, and then waits until
// those that were admitted before have returned: what an older holder does never ends after
// something that a newer one does has begun. The wait is bounded by ctx, whose error is then
// wrapped in that of Admit. Several calls with one token run at the same time. Admit must not be
// called from apply with a newer token of the same key, as it would wait for its own caller.
func (g *Gate) Admit(ctx context.Context, key string, token uint64, apply func() error) error {
	if err := check(key, token); err != nil {
		return err
	}
	if err := g.enter(ctx, key, token); err != nil {
		return err
	}
	defer g.leave(key)
	if apply == nil {
		return nil
	}
	return apply()
}

func (g *Gate) enter(ctx context.Context, key string, token uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.keys[key]
	if p == nil {
		if g.keys == nil {
			g.keys = map[string]*passage{}
		}
		p = &passage{}
		g.keys[key] = p
	}
	p.newest = max(p.newest, token)
	for p.running > 0 && p.token != token && token == p.newest {
		if p.idle == nil {
			p.idle = make(chan struct{})
		}
		idle := p.idle
		g.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if err := ctx.Err(); err != nil {
			return failed(key, err)
		}
	}
	if token < p.newest { // safeguard: fence
		return &StaleError{Key: key, Token: token, Newest: p.newest}
	}
	p.token = token
	p.running++
	return nil
}

func (g *Gate) leave(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.keys[key]
	if p.running--; p.running == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}
