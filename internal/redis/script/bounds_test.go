package script

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// No number that is stored decides how long a script runs: it works on what is there. (A server
// that runs a script answers nobody.) What is damaged is refused, and a queue that most have left
// has gaps as long as it likes.
//
// covers: I2, R23
func TestNoScriptCountsOutAGap(t *testing.T) {
	const far int64 = 10_000_000_000_000 // the last number that a place may have
	place := func(r rig, id string) string {
		return fmt.Sprintf("%d 60000 client x 60000 %s 1 {}", r.now()+60_000, id)
	}
	held := func(r rig, group string, fields ...string) {
		ends := fmt.Sprint(r.now() + 60_000)
		r.set(append([]string{
			"v", "h2", "f", "7", "g", fmt.Sprintf(group, ends), "k:1",
			ends + " 7 me hold {}", "h:hold", "1",
		}, fields...)...)
	}
	t.Run("gaps", func(t *testing.T) {
		r := newRig(t)
		held(r, fmt.Sprintf("r 0 1 %%s 0 0 0 1 %d 2 0", far), "q:5", place(r, "a"), "w:a", "5",
			fmt.Sprint("q:", far), place(r, "b"), "w:b", fmt.Sprint(far))
		var waiters []string
		for _, w := range r.state().Waiters {
			waiters = append(waiters, w.Owner)
		}
		if want := []string{"a", "b"}; !slices.Equal(waiters, want) {
			t.Errorf("in the queue: %q, want %q", waiters, want)
		}
		if _, err := r.ask(queued("b")); err == nil || !errors.Is(err, backend.ErrHeld) {
			t.Errorf("the last in the queue asks: %v, want ErrHeld", err)
		}
	})
	t.Run("holders", func(t *testing.T) {
		r := newRig(t)
		held(r, "r 0 1000000000 %s 0 0 0 1 0 0 0")
		if _, err := r.inspect(); !errors.Is(err, backend.ErrForeign) {
			t.Errorf("Inspect: %v, want ErrForeign", err)
		}
		c := backend.Claim{
			Key: r.key, Owner: "me", Hold: "hold", Reentrant: true, TTL: minute,
			MinToken: 1000,
		}
		for name, reply := range map[string]any{
			"renew": r.send(r.l.Renew(c)), "release": r.send(r.l.Release(c)),
		} {
			if _, code := open(reply); code != codeForeign {
				t.Errorf("%s: %v, want to be refused", name, reply)
			}
		}
	})
}
