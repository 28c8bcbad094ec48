package record

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// An empty store has no records.
type empty struct{ Store }

func (empty) Read(context.Context, string) ([]byte, time.Time, error) {
	return nil, time.Now(), nil
}

// Whoever comes when the run has found nobody, and has not returned yet, starts another: that one
// ends without a look at what came since.
//
// covers: W1
func TestWhoComesAsTheRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(empty{}, Config{})
		defer b.Close()
		l := &b.look
		l.running = true // of one that is at work
		if _, goOn := l.take(); goOn {
			t.Fatal("it goes on, and nobody watches: this shows nothing")
		}
		_, leave := l.enter("k", "topic")
		l.changed("k")
		synctest.Wait()
		l.mu.Lock()
		if len(l.dirty) > 0 {
			t.Error("nobody looks at what has changed")
		}
		l.mu.Unlock()
		leave()
	})
}
