package recordtest

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend/record"
)

// Memory is a store of records in this process, for tests. It compares and swaps
// ([record.Versioned]), and tells of changes. Its clock is [time.Now].
type Memory struct {
	mu       sync.Mutex
	values   map[string]record.Value
	versions int
	told     map[*func(string)]bool // of those who watch
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{values: map[string]record.Value{}, told: map[*func(string)]bool{}}
}

// Config returns what the store can do, for [record.New].
func (m *Memory) Config() record.Config {
	return record.Config{
		Name: "memory", MinTTL: time.Millisecond, Watch: m.Watch, Keys: m.Keys,
		Identity: "memory",
	}
}

// Get implements [record.Versioned].
func (m *Memory) Get(ctx context.Context, key string) (record.Value, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.values[key]
	v.Bytes, v.Time = bytes.Clone(v.Bytes), time.Now()
	return v, ctx.Err()
}

// Swap implements [record.Versioned].
func (m *Memory) Swap(ctx context.Context, key string, old record.Value, next []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	if m.values[key].Version != old.Version {
		m.mu.Unlock()
		return record.ErrChanged
	}
	m.versions++ // of no other value, deleted ones included
	m.values[key] = record.Value{Bytes: bytes.Clone(next), Version: m.versions}
	if next == nil {
		delete(m.values, key)
	}
	told := m.watchers()
	m.mu.Unlock()
	for _, changed := range told {
		changed(key)
	}
	return nil
}

func (m *Memory) watchers() (all []func(string)) {
	for changed := range m.told {
		all = append(all, *changed)
	}
	return all
}

// Watch is a [record.Config]'s.
func (m *Memory) Watch(ctx context.Context, changed func(key string)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told[&changed] = true
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.told, &changed)
	})
	return ctx.Err()
}

// Keys is a [record.Config]'s.
func (m *Memory) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		m.mu.Lock()
		var keys []string
		for key := range m.values {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		m.mu.Unlock()
		for _, key := range slices.Sorted(slices.Values(keys)) {
			if !yield(key, ctx.Err()) {
				return
			}
		}
	}
}
