package backendtest

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/backend"
)

// modest is a backend without tokens, wake-ups and inspection.
type modest struct{ backend.Backend }

func (m modest) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	g, err := m.Backend.TryAcquire(ctx, c)
	g.Token = 0
	var held *backend.HeldError
	if errors.As(err, &held) {
		held.Token = 0
	}
	return g, err
}

func (m modest) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) ([]backend.Grant, error) {
	grants, err := m.Backend.TryAcquireAll(ctx, claims)
	for i := range grants {
		grants[i].Token = 0
	}
	return grants, err
}

func (modest) Watch(context.Context, backend.Claim) (<-chan backend.Wake, error) {
	return nil, errors.ErrUnsupported
}

func (modest) Inspect(context.Context, string) (backend.State, error) {
	return backend.State{}, errors.ErrUnsupported
}
