package config

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

var errDown = errors.New("store is down")

func init() {
	backend.Register("down", func(context.Context, *url.URL) (backend.Backend, error) { return nil, errDown })
}

func TestOpen(t *testing.T) {
	ctx := t.Context()
	for _, f := range []File{{}, load(t, "backend: mem://\nttl: 10s\nnamespace: shop\n")} {
		b, cfg, err := f.Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		l, err := locker.New(b, locker.Bare, cfg)
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.Lock(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		key, ttl := backend.Namespaced(f.Locker.Namespace, "k"), f.Locker.TTL
		if ttl == 0 {
			ttl = locker.DefaultTTL
		}
		state, err := b.Inspect(ctx, key)
		if err != nil || len(state.Holders) != 1 || state.Holders[0].TTL > ttl || state.Holders[0].TTL < ttl-5*time.Second {
			t.Errorf("%v: %q is %+v, %v; want one holder with a lease of %v", f, key, state, err, ttl)
		}
		if err := errors.Join(g.Unlock(), l.Shutdown(ctx), b.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenFails(t *testing.T) {
	t.Setenv("NODE", "h")
	path := write(t, "ttl: 1s\nbackend: nosuch://u:hunter2@${NODE}?p=hunter2\n")
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(f File, start string, is error) {
		t.Helper()
		b, cfg, err := f.Open(t.Context())
		var e *Error
		if b != nil || cfg.TTL != 0 || !errors.As(err, &e) || !errors.Is(err, is) {
			t.Fatalf("got %v, %+v, %v; want an error that is %v", b, cfg, err, is)
		}
		if text := strings.ReplaceAll(err.Error(), path, "holdfast.yaml"); !strings.HasPrefix(text, start) || strings.Contains(text, "hunter2") {
			t.Errorf("got %s\nwant %s…", text, start)
		}
	}
	expect(f, "config: holdfast.yaml:2: backend (from NODE): open nosuch://h: invalid url \"nosuch://\": scheme is not registered", backend.ErrInvalid)

	// The program puts another URL there, which the file is not to be blamed for.
	if f.Backend, err = ParseURL("down://u:hunter2@h"); err != nil {
		t.Fatal(err)
	}
	expect(f, "config: holdfast.yaml: backend: open down://h: store is down", errDown)

	t.Setenv("HOLDFAST_BACKEND", "down://u:hunter2@h")
	if f, err = Load(path); err != nil {
		t.Fatal(err)
	}
	expect(f, "config: backend (from HOLDFAST_BACKEND): open down://h: store is down", errDown)
}
