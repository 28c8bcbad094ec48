package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/fence"
)

// A stub answers as a backend does, and remembers what it was asked.
type stub struct {
	asked string
	reply any
	err   error
}

func (s *stub) Fenced(_ context.Context, key string, token uint64, script string, keys,
	args []string,
) (any, error) {
	s.asked = fmt.Sprint(key, " ", token, " ", keys, args, " ", script)
	return s.reply, s.err
}

// What Redis does with it is tried by redistest.Fenced, on a server.
func TestInRedis(t *testing.T) {
	b := &stub{}
	h := locker.Hold{Key: "sku-1", StoreKey: "shop~sku-1", Mode: backend.Exclusive, Token: 7}
	data := fence.InRedis(b, h)
	if err := data.HSet(t.Context(), "h", "a", "1", "b", "2"); err != nil {
		t.Error(err)
	}
	want := "shop~sku-1 7 [h] [a 1 b 2] return redis.call('HSET', KEYS[1], unpack(ARGV))"
	if b.asked != want {
		t.Errorf("asked %s, want %s", b.asked, want)
	}
	if value, ok, err := data.Get(t.Context(), "s"); value != "" || ok || err != nil {
		t.Errorf("Get of what is not there: %q, %v, %v", value, ok, err)
	}
	b.reply = "41"
	if value, ok, err := data.Get(t.Context(), "s"); value != "41" || !ok || err != nil {
		t.Errorf("Get: %q, %v, %v", value, ok, err)
	}
	b.err = fmt.Errorf("%w: another holds", backend.ErrLost)
	var stale *fence.StaleError
	if err := data.Set(t.Context(), "s", "x"); !errors.As(err, &stale) ||
		!errors.Is(err, fence.ErrStale) ||
		!errors.Is(err, backend.ErrLost) || stale.Key != "sku-1" || stale.Token != 7 {
		t.Errorf("Set by one who is late: %v", err)
	}
	b.err = context.DeadlineExceeded // unknown: not a refusal
	if err := data.Set(t.Context(), "s", "x"); !errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, fence.ErrStale) {
		t.Errorf("Set without an answer: %v", err)
	}
	for name, h := range map[string]locker.Hold{
		"shared": {Key: "k", StoreKey: "k", Mode: backend.Shared, Token: 7}, "no token": {
			Key:      "k",
			StoreKey: "k", Mode: backend.Exclusive,
		},
	} {
		b.asked = ""
		if err := fence.InRedis(b, h).Set(t.Context(), "s", "x"); !errors.Is(err,
			backend.ErrInvalid) || b.asked != "" {
			t.Errorf("%s: %v, asked: %q", name, err, b.asked)
		}
	}
}
