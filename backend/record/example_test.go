package record_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/locker"
)

// A store in 20 lines: a map that is locked for a change. It belongs to one process, so its clock
// is that of the process.
type mapStore struct {
	mu     sync.Mutex
	values map[string][]byte
}

func (s *mapStore) Change(_ context.Context, key string,
	f func([]byte, time.Time) ([]byte, error),
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, err := f(s.values[key], time.Now())
	if err == nil {
		s.values[key] = value
	}
	return err
}

func (s *mapStore) Read(_ context.Context, key string) ([]byte, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key], time.Now(), nil
}

func Example() {
	b := record.New(&mapStore{values: map[string][]byte{}}, record.Config{Name: "map"})
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()

	g, err := l.Lock(context.Background(), "sku-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = l.TryLock(context.Background(), "sku-1")
	fmt.Println("a second one is refused:", errors.Is(err, backend.ErrHeld))
	fmt.Println(g.Unlock())
	// Output:
	// a second one is refused: true
	// <nil>
}
