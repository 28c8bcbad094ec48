package membackend_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
)

// A key that was forgotten goes on above every token that it had, also if another with lower tokens was
// forgotten after it: the clock is no help where it has been set back.
//
// covers: K1
func TestTokensOfForgottenKeysRise(t *testing.T) {
	b := membackend.New()
	defer b.Close()
	acquire := func(key string, least uint64) uint64 {
		t.Helper()
		c := backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: time.Minute, MinToken: least}
		g, err := b.TryAcquire(t.Context(), c)
		if err == nil && least > 0 {
			err = b.Renew(t.Context(), c)
		}
		if err != nil {
			t.Fatal(err)
		}
		return max(g.Token, least)
	}
	low := acquire("other", 0)
	high := acquire("k", low+1_000_000_000_000)
	b.Drop("k")
	b.Drop("other")
	if token := acquire("k", 0); token <= high {
		t.Errorf("token %d of k was followed by %d", high, token)
	}
}
