package impl

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// The README's two settings: the old one tracks its own writes, the newer one (Redis 7.0.5 and later) does not.
var (
	_ = register(newRueidislock("rueidislock", "KeyMajority 1 (one server), KeyValidity 5s", false))
	_ = register(newRueidislock("rueidislock-noloop", "KeyMajority 1 (one server), KeyValidity 5s, NoLoopTracking", true))
)

func newRueidislock(name, settings string, noloop bool) Impl {
	return Impl{
		Name: name, Role: Peer, Settings: settings, Modules: []string{"github.com/redis/rueidis"},
		Sent: []string{"evalsha", "eval"}, Extra: !noloop,
		Open: func(_ context.Context, addr string) (Client, error) {
			l, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1, NoLoopTracking: noloop,
			})
			if err != nil {
				return nil, err
			}
			return rueidisLocker{l}, nil
		},
	}
}

type rueidisLocker struct{ l rueidislock.Locker }

func (r rueidisLocker) Close() error {
	r.l.Close()
	return nil
}

func (r rueidisLocker) Lock(ctx context.Context, key string) (Held, error) {
	_, cancel, err := r.l.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return rueidisHeld(cancel), nil
}

type rueidisHeld context.CancelFunc

func (rueidisHeld) Token() uint64 { return 0 }

func (h rueidisHeld) Unlock() error {
	h() // sends the release and waits for it
	return nil
}
