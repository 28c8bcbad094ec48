package redis

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// Fenced runs source, a Lua script with keys and args of its own, in the step that proves that
// token is one of the hold of key, and returns its reply. The error is [backend.ErrLost] if it is
// not: then nothing ran.
func (s *Store) Fenced(ctx context.Context, key string, token uint64, source string,
	keys, args []string,
) (any, error) {
	err := backend.ValidateKey(key)
	if err == nil {
		err = s.Layout.CheckKey(key, s.cluster)
	}
	if err == nil {
		err = s.checkFenced(key, token, source, keys)
	}
	if err != nil {
		return nil, err
	}
	reply, _, err := s.run(ctx, s.Layout.Fenced(key, token, source, keys, args), 0)
	if err != nil {
		return nil, err
	}
	return script.DecodeFenced(reply, token)
}

// checkFenced refuses what could not run, or what a client library could not send.
func (s *Store) checkFenced(key string, token uint64, source string, keys []string) error {
	switch {
	case token == 0 || token >= 1<<53: // exact in Lua, as are all that Redis grants
		return &backend.InvalidError{Field: "token", Reason: "is not one that a Redis granted"}
	case strings.HasPrefix(source, "#!"):
		return &backend.InvalidError{
			Field:  "script",
			Reason: "begins with #!, and is to run as a part of another",
		}
	case !s.cluster:
		return nil
	}
	tag := script.HashTag(s.Layout.Key(key))
	for _, k := range keys {
		if script.HashTag(k) != tag {
			return &backend.InvalidError{
				Field: "key", Value: k, Reason: "must have the hash tag {" + tag +
					"}, that of the lock, in a cluster",
			}
		}
	}
	return nil
}

// LockKey returns the Redis key of a lock.
func (s *Store) LockKey(key string) string { return s.Layout.Key(key) }
