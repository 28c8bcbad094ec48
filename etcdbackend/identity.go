package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// # Which cluster this is
//
// etcd has a cluster id, but that is a hash of the members' first peer addresses: two single servers with default flags have the same. So
// a cluster is known by a number that was drawn for it, which is kept in the cluster itself: as the length of a lease that nothing is
// attached to.
//
// A key would be below somebody's prefix. Clients with other prefixes would have another key, and those whose user has no more than a
// prefix could not read a common one; but one etcd under two prefixes is one etcd. A lease is no key's: all clients have the same, no user
// needs a permission for it, no range sees it, and it stays when locks are deleted by prefix.
//
// All agree. A lease is made by one Raft entry, and only if there is none of its id; its length never changes; and nobody answers what it
// drew, but what it reads afterwards. A leader of the past may not know the lease yet, and then finds that it cannot make it, but it knows no
// other.
const (
	// identityLease is "holdfast". A server's own choice is the same once in 2^63.
	identityLease clientv3.LeaseID = 0x686f6c6466617374

	// identityLeast and identityRange are of its length in seconds: 68 to 136 years, so that the end is a date that a server can count in
	// nanoseconds. Two clusters draw the same once in two thousand million.
	identityLeast = 1 << 31
	identityRange = 1 << 31

	identityTries = 3 // looks; the second finds it unless somebody revokes it
)

// Identity returns a number that was drawn for this cluster, for [backend.Backend]: the same from all members under all their names,
// with any Prefix and Layout, and after restarts. The first call ever leaves a lease in the cluster, 686f6c6466617374, which any user may
// make; after that each is one read, answered by the leader, and bounded by RequestTimeout.
//
// Copied data is the same cluster: of two that were restored from one snapshot, a quorum refuses the second. Where that is meant,
// `etcdctl lease revoke 686f6c6466617374` has one of them draw anew. The error is [errors.ErrUnsupported] for a client without a connection,
// such as that of an embedded server.
func (b *Backend) Identity(ctx context.Context) (id string, err error) {
	err = b.call(ctx, "identity", func(ctx context.Context) error {
		id, err = b.identity(ctx)
		return err
	})
	return id, err
}

func (b *Backend) identity(ctx context.Context) (string, error) {
	conn := b.client.ActiveConnection()
	if conn == nil {
		return "", fmt.Errorf("%w: the identity of an etcd without a connection to it", errors.ErrUnsupported)
	}
	leases := etcdserverpb.NewLeaseClient(conn) // the client's own chooses no id
	for range identityTries {
		found, _, err := patiently(ctx, b.limits, b.soon(), func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return b.client.TimeToLive(ctx, identityLease)
		})
		if err != nil {
			return "", err
		}
		if found.GrantedTTL > 0 {
			return "etcd:" + strconv.FormatInt(found.GrantedTTL, 10), nil
		}
		drawn := &etcdserverpb.LeaseGrantRequest{ID: int64(identityLease), TTL: identityLeast + rand.Int64N(identityRange)}
		_, _, err = patiently(ctx, b.limits, b.soon(), func(ctx context.Context) (*etcdserverpb.LeaseGrantResponse, error) {
			return leases.LeaseGrant(ctx, drawn)
		})
		if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) {
			return "", err
		}
	}
	return "", errors.New("the lease that tells which cluster it is does not stay")
}
