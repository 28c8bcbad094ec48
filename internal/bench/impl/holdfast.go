package impl

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend"   // redis://
	_ "github.com/holdfast-go/holdfast/rueidisbackend" // rueidis://
)

// Strict is what a name of ours ends in when the store sees every acquisition.
const Strict = "-strict"

var (
	_ = register(newHoldfast("holdfast+goredis", "redis://", "github.com/redis/go-redis/v9"))
	_ = register(newHoldfast("holdfast+goredis"+Strict, "redis://", "github.com/redis/go-redis/v9"))
	_ = register(newHoldfast("holdfast+rueidis", "rueidis://", "github.com/redis/rueidis"))
	_ = register(newHoldfast("holdfast+rueidis"+Strict, "rueidis://", "github.com/redis/rueidis"))
)

// newHoldfast is holdfast on the backend of a URL scheme. A backend that comes later is a file with one more call of this.
func newHoldfast(name, scheme string, modules ...string) Impl {
	cfg, settings := locker.Config{TTL: TTL}, "locker.Config{TTL: 8s}, everything else at its default"
	var skip []string
	if strings.HasSuffix(name, Strict) { // differs only where several want one key
		cfg.Wait.Passes = -1
		settings, skip = "locker.Config{TTL: 8s}, Wait.Passes: -1, so that the store sees every acquisition", []string{"S1", "S4", "S6"}
	}
	return Impl{
		Name: name, Role: Ours, Modules: modules, Fenced: true, Extra: name == "holdfast+rueidis"+Strict, Settings: scheme + ", " + settings, Skip: skip,
		Sent: []string{"evalsha", "eval", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "ping", "hello"},
		Open: func(ctx context.Context, addr string) (Client, error) {
			b, err := backend.Open(ctx, scheme+addr)
			if err != nil {
				return nil, err
			}
			return On(b, cfg)
		},
	}
}

// On is holdfast on a backend, which it closes.
func On(b backend.Backend, cfg locker.Config) (Client, error) {
	l, err := locker.New(b, locker.Bare, cfg)
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return &holdfast{b, l}, nil
}

type holdfast struct {
	b backend.Backend
	l *locker.Client[struct{}]
}

func (h *holdfast) Lock(ctx context.Context, key string) (Held, error) {
	g, err := h.l.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return guard{g}, nil
}

func (h *holdfast) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := h.l.Shutdown(ctx)
	if err2 := h.b.Close(); err == nil {
		err = err2
	}
	return err
}

type guard struct{ g *locker.Guard[struct{}] }

func (g guard) Token() uint64 { return g.g.Hold().Token }
func (g guard) Unlock() error { return g.g.Unlock() }
