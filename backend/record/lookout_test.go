package record

import (
	"context"
	"hash/crc32"
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

// A single has one record, which does not change while it is read.
type single struct {
	Store
	value []byte
}

func (s *single) Read(context.Context, string) ([]byte, time.Time, error) {
	return s.value, time.Now(), nil
}

// A record that replaced another is looked at, also where a checksum of the two is the same: that
// of a value that ends in its own checksum, as records do, has 65,536 results.
//
// covers: W1
func TestRecordsWithOneChecksum(t *testing.T) {
	store := &single{}
	b := New(store, Config{})
	defer b.Close()
	l := &b.look
	l.running = true // none is at work but this test
	wake, leave := l.enter("k", observers("k"))
	defer leave()
	values := map[uint32][]byte{}
	for token := uint64(1 << 14); token < 1<<21; token++ { // three bytes each
		value := (&Record{Token: token}).Encode("k")
		sum := crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli))
		if values[sum] == nil {
			values[sum] = value
			continue
		}
		for _, store.value = range [][]byte{values[sum], value} {
			l.look("k", false)
			select {
			case <-wake:
			default:
				t.Error("a change that nobody is told of")
			}
		}
		return
	}
	t.Fatal("no two records have one checksum: this shows nothing")
}

// A hooked store has something happen in the middle of a read.
type hooked struct {
	single
	during func()
}

func (s *hooked) Read(ctx context.Context, key string) ([]byte, time.Time, error) {
	defer s.during()
	return s.single.Read(ctx, key)
}

// A claim is refused while a look has read the record and has not noted it: what it was refused for
// came after, and may be gone before the next look, which finds the record as it was.
//
// covers: W1
func TestAskedDuringALook(t *testing.T) {
	store := &hooked{}
	b := New(store, Config{})
	defer b.Close()
	l := &b.look
	l.running = true // none is at work but this test
	wake, leave := l.enter("k", observers("k"))
	defer leave()
	store.during = func() { l.asked("k") }
	l.look("k", false)
	<-wake
	store.during = func() {}
	l.look("k", false)
	select {
	case <-wake:
	default:
		t.Error("who was refused sleeps on")
	}
	l.look("k", false)
	select {
	case <-wake:
		t.Error("woken by a record that is as it was")
	default:
	}
}
