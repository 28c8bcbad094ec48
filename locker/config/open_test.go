package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

var errDown = errors.New("store is down")

func init() {
	backend.Register("down", func(context.Context, *url.URL) (backend.Backend, error) {
		return nil, errDown
	})
	backend.Register("picky", func(context.Context, *url.URL) (backend.Backend, error) {
		return nil, &backend.InvalidError{
			Field: "url", Value: "colour",
			Reason: "is not a known query parameter",
		}
	})
	backend.Register("quiet", func(context.Context, *url.URL) (backend.Backend, error) {
		return membackend.New(), nil
	})
}

func TestOpen(t *testing.T) {
	ctx := t.Context()
	for _, f := range []File{
		load(t, "backend: mem://\n"),
		load(t, "backend: mem://\nttl: 10s\nnamespace: shop\n"),
	} {
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
		if err != nil || len(state.Holders) != 1 || state.Holders[0].TTL > ttl ||
			state.Holders[0].TTL < ttl-5*time.Second {
			t.Errorf("%v: %q is %+v, %v; want one holder with a lease of %v", f, key, state, err,
				ttl)
		}
		if err := errors.Join(g.Unlock(), l.Shutdown(ctx), b.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestOpenWithoutBackend: locks that nobody else sees are to be asked for by name.
func TestOpenWithoutBackend(t *testing.T) {
	fromEnv, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []File{{}, fromEnv, load(t, "ttl: 5s\n"), load(t, "backend: redis://h\n")} {
		f.Backend = URL{} // of the last one, the program took it away
		b, _, err := f.Open(t.Context())
		if b != nil {
			_ = b.Close()
		}
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, backend.ErrInvalid) || e.Key != "backend" ||
			e.File != f.Path || e.Line != 0 {
			t.Fatalf("opened %v, %v; want an *Error of the backend", b, err)
		}
		for _, says := range []string{
			"no store is configured: set HOLDFAST_BACKEND ",
			"file:///var/lock/app", "mem://", "redis://",
		} {
			if text := err.Error(); !strings.Contains(text, says) || strings.Contains(text, "\n") {
				t.Errorf("says %q, want one line with %q", text, says)
			}
		}
	}
}

// TestOpenLogs: which store it is, once, and without secrets; and at level Debug the variables that
// are not used.
func TestOpenLogs(t *testing.T) {
	for _, name := range []string{
		"HOLDFAST_SEED", "HOLDFAST_COLOUR", "HOLDFAST_KEY", "HOLDFAST_TOKEN", "HOLDFAST_PORT",
		"HOLDFAST_PORT_6379_TCP_ADDR",
		"HOLDFAST_SERVICE_HOST", "HOLDFAST_DB_SERVICE_PORT",
	} {
		t.Setenv(name, "x")
	}
	t.Setenv("HOLDFAST_BACKEND", "quiet://u:"+secret+"@h:1/2?p="+secret)
	f, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	for level, want := range map[slog.Level]string{
		slog.LevelWarn: "",
		slog.LevelInfo: "level=INFO msg=\"holdfast: store opened\" store=quiet://h:1/2\n",
		slog.LevelDebug: "level=DEBUG msg=\"holdfast: unknown variables are not used\" " +
			"variables=\"[HOLDFAST_COLOUR HOLDFAST_SEED]\"\n" +
			"level=INFO msg=\"holdfast: store opened\" store=quiet://h:1/2\n",
	} {
		var log strings.Builder
		f.Locker.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
			Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))
		b, cfg, err := f.Open(t.Context())
		if err != nil || cfg.Logger != f.Locker.Logger {
			t.Fatal(err)
		}
		_ = b.Close()
		if log.String() != want {
			t.Errorf("at %v it logs\n%s\nwant\n%s", level, log.String(), want)
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
		if text := strings.ReplaceAll(err.Error(), path, "holdfast.yaml"); !strings.HasPrefix(text,
			start) || strings.Contains(text, "hunter2") {
			t.Errorf("got %s\nwant %s…", text, start)
		}
	}
	expect(f, "config: holdfast.yaml:2: backend (from NODE): open nosuch://h: invalid url "+
		"\"nosuch://\": scheme is not registered", backend.ErrInvalid)

	// Of several variables the one that has what is wrong is named, and all if none has.
	t.Setenv("QUERY", "colour=red")
	several := load(t, "backend: picky://${NODE}?${QUERY}\n")
	_, _, err = several.Open(t.Context())
	if text := fmt.Sprint(err); !strings.Contains(text, "backend (from QUERY): ") {
		t.Error(text)
	}
	t.Setenv("QUERY", "c%6flour=red")
	_, _, err = several.Open(t.Context())
	if text := fmt.Sprint(err); !strings.Contains(text, "backend (from NODE, QUERY): ") {
		t.Error(text)
	}

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
