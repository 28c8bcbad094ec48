package membackend_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A test of code that locks: in a synctest bubble an hour takes no time, and no test is flaky. Make
// the store and the client inside of the bubble, and close them there.
func Example_synctest() {
	_ = func(t *testing.T) { synctest.Test(t, waitsAnHour) } // func TestWaitsAnHour(t *testing.T)
}

func waitsAnHour(t *testing.T) {
	b := membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	g, err := l.Lock(t.Context(), "sku-1")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Hour, func() { _ = g.Unlock() }) // renewed 1080 times until then

	began := time.Now()
	err = locker.Do(t.Context(), l, "sku-1", func(ctx context.Context, _ struct{}) error {
		return ctx.Err()
	})
	if waited := time.Since(began); err != nil || waited != time.Hour {
		t.Error(fmt.Errorf("waited %v: %w", waited, err))
	}
}
