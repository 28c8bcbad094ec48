package etcdbackend

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/backend"
)

// failure turns what the client returned into one of the three answers. ctx is the caller's.
//
// Definite are only those errors that a server gives instead of proposing the request: no permission, no space, too many
// requests. Unavailable, DeadlineExceeded, Canceled and all else are unknown, as the request may be in the Raft log. The error
// wraps ctx.Err() if ctx has ended, and never a context error otherwise, so that a caller does not take our RequestTimeout for
// its own deadline.
func (b *Backend) failure(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case b.ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, clientv3.ErrNoAvailableEndpoints)):
		return backend.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case isCode(err, codes.PermissionDenied), isCode(err, codes.Unauthenticated), isOneOf(err, denials):
		return fmt.Errorf("%w: %w", backend.ErrDenied, err)
	case isOneOf(err, untaken):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case errors.Is(err, context.DeadlineExceeded), isCode(err, codes.DeadlineExceeded),
		errors.Is(err, context.Canceled), isCode(err, codes.Canceled):
		return fmt.Errorf("etcd: no answer within %v", b.cfg.RequestTimeout)
	}
	return fmt.Errorf("etcd: %w", err)
}

// denials are refusals of the credentials that have another code.
var denials = []error{
	rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrAuthNotEnabled, rpctypes.ErrInvalidAuthToken,
}

// untaken are refusals before the request was proposed to Raft.
var untaken = []error{rpctypes.ErrNoSpace, rpctypes.ErrTooManyRequests}

func isOneOf(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(rpctypes.Error(err), target) {
			return true
		}
	}
	return false
}

// noLease reports whether the server said that the lease does not exist, which is definite.
func noLease(err error) bool {
	return err != nil && errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound)
}

// isCode looks for a gRPC code, in the two forms in which the client returns it.
func isCode(err error, code codes.Code) bool {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code() == code
	}
	return status.Code(err) == code
}
