package redistest

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Replicas holds a backend that waits for a replica to it: with one a grant is a grant; with none that answers it is unknown,
// which a release settles.
//
// covers: R1, R2
func Replicas(t *testing.T, scheme string) {
	set := testserver.Sentinel(t)
	url := strings.Replace(set.URL(), "redis", scheme, 1) + "?replicas=1&request_timeout=1s"
	b := Dial(t, url)
	defer func() { _ = b.Close() }()
	c := Claim(Key(t))
	Acquired(t, b, c)
	Want(t, "renew", b.Renew(t.Context(), c), nil)
	for _, r := range set.Replicas {
		r.Stop()
	}
	if err := b.Renew(t.Context(), c); backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("renew without replicas = %v, want an unknown answer", err)
	}
	other := Claim(Key(t))
	if _, err := b.TryAcquire(t.Context(), other); backend.AnswerOf(err) != backend.Unknown || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("acquire without replicas = %v, want an unknown answer that says why", err)
	}
	Want(t, "release", b.Release(t.Context(), other), nil)
	for _, r := range set.Replicas {
		r.Cont()
	}
	Eventually(t, "acquired with the replicas back", func() error {
		_, err := b.TryAcquire(t.Context(), Claim(Key(t)))
		return err
	})
	Want(t, "release", b.Release(t.Context(), c), nil)
}
