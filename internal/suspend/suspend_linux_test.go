package suspend

import (
	"testing"
	"time"
)

// A reading is used again only as long as nothing says that the machine may have slept since.
// covers: B13
func TestAsleepIsReadAgain(t *testing.T) {
	const fake = 42 * time.Hour
	now := time.Now()
	wall := now.UnixNano()
	for name, c := range map[string]struct {
		last reading
		used bool
	}{
		"just read": {reading{now, wall, fake}, true},
		"read a little later": {reading{
			now.Add(readFor / 2), wall + int64(readFor/2),
			fake,
		}, true},
		"read a while ago": {
			reading{now.Add(-readFor), wall - int64(readFor), fake},
			false,
		},
		"the wall clock has jumped":   {reading{now, wall - int64(Napless), fake}, false},
		"the wall clock was set back": {reading{now, wall + int64(Napless), fake}, false},
	} {
		latest.Store(&c.last)
		if got := Slept(now); (got == fake) != c.used {
			t.Errorf("%s: Slept is %v, used again: %v, want %v", name, got, got == fake, c.used)
		}
	}
	latest.Store(nil)
}
