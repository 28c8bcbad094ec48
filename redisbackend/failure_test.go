package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// failing is a client that fails every command with err.
type failing struct {
	redis.UniversalClient
	err error
}

func (c failing) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(c.err)
	return c.err
}

// serverError is an error reply, as go-redis has it.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// covers: A2, R15
func TestFailureClasses(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connect: connection refused")}
	for name, test := range map[string]struct {
		err  error
		want error // nil: unknown
	}{
		"refused":          {refused, backend.ErrUnavailable},
		"refused, wrapped": {fmt.Errorf("x: %w", refused), backend.ErrUnavailable},
		"our dialer":       {&store.ConnectError{Err: io.EOF}, backend.ErrUnavailable},
		"pool timeout":     {redis.ErrPoolTimeout, backend.ErrUnavailable},
		"pool exhausted":   {redis.ErrPoolExhausted, backend.ErrUnavailable},
		"client closed":    {redis.ErrClosed, backend.ErrClosed},
		"loading":          {serverError("LOADING x"), backend.ErrUnavailable},
		"wrong type":       {serverError("WRONGTYPE x"), backend.ErrForeign},
		"at AUTH": {fmt.Errorf("failed to authenticate: %w",
			serverError("WRONGPASS x")), backend.ErrDenied},
		"a reply of no class": {serverError("ERR something"), nil},
		"read":                {&net.OpError{Op: "read", Err: io.EOF}, nil},
		// others' requests were written
		"write":             {&net.OpError{Op: "write", Err: io.ErrClosedPipe}, nil},
		"eof":               {io.EOF, nil},
		"time-out":          {os.ErrDeadlineExceeded, nil},
		"deadline":          {context.DeadlineExceeded, nil},
		"somebody's cancel": {context.Canceled, nil},
		// go-redis repeats the last dial error to all
		"dial of another": {&store.ConnectError{Err: context.Canceled}, backend.ErrUnavailable},
	} {
		b, err := New(failing{err: test.err}, Config{AllowEviction: true})
		if err != nil {
			t.Fatal(err)
		}
		err = b.Renew(t.Context(), claim("k"))
		if test.want != nil && !errors.Is(err, test.want) ||
			test.want == nil && backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, but the caller's context has not ended", name, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFailureOfAnEndedContext(t *testing.T) {
	past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	b, err := New(failing{err: io.EOF}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, test := range []struct {
		ctx  context.Context
		want error
	}{{past, context.DeadlineExceeded}, {cancelled, context.Canceled}} {
		for _, err := range []error{
			io.EOF, os.ErrDeadlineExceeded, test.want,
			&store.ConnectError{Err: test.want},
		} {
			if got := b.store.Failure(test.ctx, err); !errors.Is(got, test.want) {
				t.Errorf("%v becomes %v, want %v", err, got, test.want)
			}
		}
		if got := b.store.Failure(test.ctx,
			&store.ConnectError{Err: io.EOF}); backend.AnswerOf(got) != backend.No {
			t.Errorf("%v: nothing was sent, and the answer is unknown", got)
		}
		for verb, err := range everyVerb(test.ctx, b) {
			if !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", verb, err, test.want)
			}
		}
	}
}

// A dial that failed because its caller left must not be put off: it would be the next caller's
// failure.
func TestNotConnected(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := notConnected(cancelled, io.EOF); conn != nil || !store.NotMade(err) {
		t.Errorf("%v, %v", conn, err)
	}
	conn, err := notConnected(t.Context(), io.EOF)
	if err != nil {
		t.Fatal(err)
	}
	_, read := conn.Read(nil)
	_, write := conn.Write(nil)
	if !store.NotMade(read) || !store.NotMade(write) || conn.Close() != nil {
		t.Errorf("%v, %v", read, write)
	}
}

func everyVerb(ctx context.Context, b backend.Backend) map[string]error {
	c := claim("every")
	_, acquire := b.TryAcquire(ctx, c)
	_, watch := b.Watch(ctx, c)
	_, inspect := b.Inspect(ctx, c.Key)
	return map[string]error{
		"TryAcquire": acquire, "Renew": b.Renew(ctx, c), "Release": storetest.Release(ctx, b, c),
		"Watch": watch, "Inspect": inspect,
	}
}

func TestRedaction(t *testing.T) {
	const secret = "s3cret-pw"
	for name, test := range map[string]struct {
		err  error
		want error
	}{
		"dial": {
			&net.OpError{Op: "dial", Err: errors.New("bad " + secret)},
			backend.ErrUnavailable,
		},
		"reply":       {serverError("NOAUTH " + secret), backend.ErrDenied},
		"unknown":     {fmt.Errorf("read %s: %w", secret, io.EOF), nil},
		"closed":      {fmt.Errorf("%s: %w", secret, redis.ErrClosed), backend.ErrClosed},
		"not serving": {serverError("MISCONF cannot write " + secret), backend.ErrNotServing},
		"may not":     {serverError("NOPERM for " + secret), script.ErrNotPermitted},
		"echoed args": {serverError("ERR unknown command 'auth', with args beginning " +
			"with: 'another-pw'"), errors.ErrUnsupported},
	} {
		b, err := New(failing{err: test.err}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		b.store.Secrets = []string{"", secret}
		_, err = b.Release(t.Context(), claim("k"))
		if err == nil || strings.Contains(err.Error(), secret) ||
			strings.Contains(err.Error(), "another-pw") {
			t.Errorf("%s: %v", name, err)
		}
		if test.want != nil && !errors.Is(err, test.want) ||
			test.want == nil && backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		_ = b.Close()
	}
}
