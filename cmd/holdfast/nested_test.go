package main

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A blind store does not tell who holds.
type blind struct{ backend.Backend }

func (blind) Inspect(context.Context, string) (backend.State, error) {
	return backend.State{}, backend.ErrUnavailable
}

// A run below one of the same key does not wait for a lock that may be its parent's: that the store
// does not tell is no "no".
func TestNestedRunIsUnknown(t *testing.T) {
	b := blind{membackend.New()}
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := &client{Client: l, backend: b}
	defer func() { _ = c.close() }()
	t.Setenv(envKey, "k")
	t.Setenv(envToken, "5")
	var exit *exitError
	if err := c.nested(t.Context(), "k", true); !errors.As(err, &exit) ||
		exit.status != exitStore || !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("it goes on with %v", err)
	}
	if err := c.nested(t.Context(), "other", true); err != nil {
		t.Errorf("another key: %v", err)
	}
}
