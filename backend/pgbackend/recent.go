package pgbackend

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backend/record"
)

// What a client keeps in mind of the rows that it has written.
const (
	rememberedFor  = 30 * time.Second
	rememberedMost = 1000 // rows
	// Bytes of a value: a longer one is of a queue, which others change, too.
	rememberedSize = 1 << 10
	sweepTimeout   = 2 * time.Second
)

// A remembered row was written by this client. Nobody else may have changed it since.
type remembered struct {
	row
	when time.Time
}

// A reading is what the server's clock showed, in answer to a statement that was sent then.
type reading struct {
	shown time.Time
	sent  time.Time
}

func (s *store) heard(sent, shown time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.After(s.clock.sent) && !shown.IsZero() {
		s.clock = reading{shown, sent}
	}
}

// guess is what this client believes to be there.
func (s *store) guess(key string) row {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.last[key].row
	if r.record == nil {
		r.record = &record.Record{}
	}
	r.guessed, r.time = true, s.nowLocked()
	return r
}

// now is what the server's clock is going to show when a request arrives that is made now, if that
// takes as long as the last one did. It is behind if this machine was suspended since.
func (s *store) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nowLocked()
}

func (s *store) nowLocked() time.Time { return s.clock.shown.Add(time.Since(s.clock.sent)) }

func (s *store) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, key)
}

// remember notes what was written.
func (s *store) remember(key string, r row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.value == nil || len(r.value) > rememberedSize {
		delete(s.last, key)
		return
	}
	s.last[key] = remembered{r, time.Now()}
	switch {
	case s.closed:
	case s.sweep == nil:
		s.sweep = time.AfterFunc(rememberedFor, s.sweepUp)
	case len(s.last) > rememberedMost:
		s.sweep.Reset(0)
	}
}

// sweepUp forgets what was written long ago, and deletes the rows of which nothing is left but a
// token that the clock has passed: a key that is locked again and again keeps its row, where an
// update is cheap, and other keys do not. A program that is killed leaves at most what it
// remembers.
func (s *store) sweepUp() {
	s.mu.Lock()
	var keys [][]byte
	var versions []string
	for key, r := range s.last {
		if len(s.last) <= rememberedMost/2 && time.Since(r.when) < rememberedFor && !s.closed {
			continue
		}
		// A copy, as a verb may be reading r.record. Safety: no hold is deleted, also if its lease
		// is over, as a transaction may keep it, and only a swap looks for that.
		rec, err := record.Decode(key, r.value)
		if err == nil && len(rec.Holds) == 0 && rec.Trim(s.clock.shown) { // safeguard: pg-sweep
			if !rec.Passed(s.clock.shown.Add(-skew)) { // safeguard: pg-sweep-skew
				continue
			}
			keys, versions = append(keys, []byte(key)), append(versions, r.version)
		}
		delete(s.last, key)
	}
	s.mu.Unlock()
	if len(keys) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
		defer cancel()
		// Whoever asks for one of the keys next finds the row, or none.
		_, _ = s.pool.Exec(ctx, s.sql.sweep, keys, versions)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweep != nil && !s.closed {
		s.sweep.Reset(rememberedFor)
	}
}

// close is called when nothing is under way but a sweep.
func (s *store) close() error {
	s.mu.Lock()
	s.closed = true
	if s.sweep != nil {
		s.sweep.Stop()
	}
	s.mu.Unlock()
	s.sweepUp()
	s.tasks.Wait()
	if s.owned {
		s.pool.Close()
	}
	return nil
}
