package redis

import (
	"context"
	"strconv"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// do makes one request about c.
func (s *Store) do(ctx context.Context, v backend.Verb, c backend.Claim) (g backend.Grant, err error) {
	script, args, err := s.plan(v, c)
	if err != nil {
		return g, err
	}
	if v == backend.Acquire {
		if err := s.Check(ctx); err != nil {
			return g, err
		}
	}
	if v != backend.Release && s.cfg.Replicas > 0 {
		return s.acknowledged(ctx, v, c, script, args)
	}
	reply, err := s.Run(ctx, script, s.Layout.Keys(c.Key), args)
	if err != nil {
		return g, err
	}
	return outcome(v, reply, c)
}

// plan is the script of a verb with its arguments, or why nothing is to be sent.
func (s *Store) plan(v backend.Verb, c backend.Claim) (script script.Script, args []string, err error) {
	if err := s.refusal(v, c); err != nil {
		return script, nil, err
	}
	switch v {
	case backend.Acquire:
		return s.Layout.Scripts().Acquire, s.Layout.Acquire(c), nil
	case backend.Renew:
		return s.Layout.Scripts().Renew, s.Layout.Renew(c), nil
	default:
		return s.Layout.Scripts().Release, s.Layout.Release(c), nil
	}
}

// refusal is why a verb is not even sent for c, or nil.
func (s *Store) refusal(v backend.Verb, c backend.Claim) error {
	caps, err := s.cfg.capabilities(), error(nil)
	if v == backend.Release {
		err = validate(c, caps)
	} else if err = c.Validate(caps); err == nil {
		err = s.cfg.fits(c)
	}
	if err == nil {
		err = s.checkKey(c.Key)
	}
	return err
}

// validate is what a release must have: its TTL and its mode may be anything, so that nothing that was acquired is stuck.
func validate(c backend.Claim, caps backend.Capabilities) error {
	if id := c.ID(); id == "" || len(id) > backend.MaxOwner {
		field := "owner"
		if c.Reentrant {
			field = "hold"
		}
		return &backend.InvalidError{Field: field, Reason: "must have 1 to " + strconv.Itoa(backend.MaxOwner) + " bytes"}
	}
	return c.ValidateRelease(caps)
}

// outcome is what the script of a verb has answered.
func outcome(v backend.Verb, reply any, c backend.Claim) (backend.Grant, error) {
	switch v {
	case backend.Acquire:
		return script.DecodeAcquire(reply, c)
	case backend.Renew:
		return backend.Grant{}, script.DecodeRenew(reply)
	default:
		return backend.Grant{}, script.DecodeRelease(reply)
	}
}
