package redistest

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Replicas holds a backend that waits for a replica to it: with one a grant is a grant; with none
// that answers it is unknown, which a release settles.
//
// covers: R1, R2
func Replicas(t *testing.T, scheme string) {
	testserver.OnlyInAll(t, "a set of Sentinels")
	t.Parallel()
	set := testserver.Sentinel(t)
	url := strings.Replace(set.URL(), "redis", scheme, 1) + "?replicas=1&request_timeout=4s"
	b := Dial(t, url)
	defer func() { _ = b.Close() }()
	c := storetest.Claim(storetest.Key(t))
	storetest.Acquired(t, b, c)
	storetest.Want(t, "renew", b.Renew(t.Context(), c), nil)
	handedOverUnconfirmed(t, b)
	for _, r := range set.Replicas {
		r.Stop()
	}
	if err := b.Renew(t.Context(), c); backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("renew without replicas = %v, want an unknown answer", err)
	}
	other := storetest.Claim(storetest.Key(t))
	if _, err := b.TryAcquire(t.Context(), other); backend.AnswerOf(err) != backend.Unknown ||
		!strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("acquire without replicas = %v, want an unknown answer that says why", err)
	}
	storetest.Want(t, "release", storetest.Release(t.Context(), b, other), nil)
	for _, r := range set.Replicas {
		r.Cont()
	}
	storetest.Eventually(t, "acquired with the replicas back", func() error {
		_, err := b.TryAcquire(t.Context(), storetest.Claim(storetest.Key(t)))
		return err
	})
	storetest.Want(t, "release", storetest.Release(t.Context(), b, c), nil)
}

// NoWait has a user who may not ask which replicas have a lock wait for one. It is refused when the
// client opens. If it loses the right later, the server has granted the lock, so what that says of
// WAIT is no answer, and a release settles it.
//
// covers: A2, R2
func NoWait(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	url := SetUser(t, srv, scheme, Permissions(t)...) + "?replicas=1"
	if b, err := backend.Open(t.Context(), url); !errors.Is(err, backend.ErrDenied) ||
		!strings.Contains(err.Error(), "'wait'") {
		t.Errorf("opened with %v, want an error that says why", err)
		if err == nil {
			_ = b.Close()
		}
	}
	SetUser(t, srv, scheme, append(Permissions(t), "WAIT")...)
	b := Dial(t, url)
	defer func() { _ = b.Close() }()
	SetUser(t, srv, scheme, Permissions(t)...)
	c := storetest.Claim(storetest.Key(t))
	if _, err := b.TryAcquire(t.Context(), c); backend.AnswerOf(err) != backend.Unknown ||
		!strings.Contains(err.Error(), "'wait'") {
		t.Errorf("acquire = %v, want an unknown answer that says why", err)
	}
	state, err := b.Inspect(t.Context(), c.Key)
	if err != nil || len(state.Holders) != 1 {
		t.Errorf("%+v, %v: it was not granted, so this shows nothing", state, err)
	}
	if err := b.Renew(t.Context(), c); backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("renew = %v, want an unknown answer", err)
	}
	storetest.Want(t, "release", storetest.Release(t.Context(), b, c), nil)
}

// handedOverUnconfirmed hands a lock over: what the releasing client's script granted has not been
// waited for, so the message must be no more than a reason to ask.
func handedOverUnconfirmed(t *testing.T, b backend.Backend) {
	t.Helper()
	holder, waiter := storetest.Claim(storetest.Key(t)), storetest.Claim(storetest.Key(t))
	waiter.Key, waiter.Queue, waiter.WaiterTTL = holder.Key, true, waiter.TTL
	storetest.Acquired(t, b, holder)
	wakes, err := b.Watch(t.Context(), waiter)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryAcquire(t.Context(), waiter); !errors.Is(err, backend.ErrHeld) {
		t.Fatalf("acquire of a held lock = %v", err)
	}
	storetest.Want(t, "release", storetest.Release(t.Context(), b, holder), nil)
	select {
	case w := <-wakes:
		if w.Granted {
			t.Errorf("the message grants %+v, which no replica is known to have", w.Grant)
		}
	case <-t.Context().Done():
		t.Fatal("nobody was woken")
	}
	storetest.Acquired(t, b, waiter)
	storetest.Want(t, "release", storetest.Release(t.Context(), b, waiter), nil)
}
