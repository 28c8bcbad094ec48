package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
)

// What is said of a store begins with what a person would say, and repeats nothing of it.
func TestStoreError(t *testing.T) {
	refused := fmt.Errorf("%w: dial tcp 127.0.0.1:1: connect: connection refused",
		backend.ErrUnavailable)
	node := func(n int) error { return fmt.Errorf("backend: open redis://h%d:1: %w", n, refused) }
	for _, c := range []struct {
		store string
		err   error
		want  string
	}{
		{
			"redis://u:p@h:1", refused,
			"cannot reach redis at h:1: dial tcp 127.0.0.1:1: connect: connection refused",
		},
		{
			"etcd://u:p@h:1,g:1", &locker.Error{
				Op: "inspect", Key: "k",
				Err: errors.New("no answer within 3s"),
			},
			"cannot reach etcd at h:1,g:1: no answer within 3s",
		},
		{
			"rueidis://h:1", &locker.Error{
				Op: "lock", Key: "k",
				Err: fmt.Errorf("%w: no answer within 5s: %w", locker.ErrNotAcquired, refused),
			},
			"cannot reach redis at h:1: no answer within 5s: dial tcp 127.0.0.1:1: connect: " +
				"connection refused",
		},
		{
			"redis://h:1", fmt.Errorf("%w: %w", backend.ErrUnavailable, context.DeadlineExceeded),
			"cannot reach redis at h:1: no answer in time",
		},
		{
			"redis://:p@h:1", fmt.Errorf("%w: WRONGPASS", backend.ErrDenied),
			"redis at h:1 refuses this user: WRONGPASS",
		},
		{
			"redis://h:1", fmt.Errorf("%w: it evicts", backend.ErrUnsafe),
			"redis at h:1 may lose locks: it evicts",
		},
		{
			"file:///etc/passwd", fmt.Errorf("%w: /etc/passwd is no folder", backend.ErrForeign),
			"cannot use the folder /etc/passwd: /etc/passwd is no folder",
		},
		{
			"file:///locks", fmt.Errorf("%w: write /locks/keys/5: no space left on device",
				backend.ErrNotServing),
			"cannot use the folder /locks: write /locks/keys/5: no space left on device",
		},
		{
			"redis://h:1", fmt.Errorf("%w: MISCONF errors writing to the AOF file",
				backend.ErrNotServing),
			"redis at h:1 is up, and does not serve: MISCONF errors writing to the AOF file",
		},
		{
			"etcds://h:1", fmt.Errorf("%w: etcdserver: no leader", backend.ErrNotServing),
			"etcd at h:1 is up, and does not serve: etcdserver: no leader",
		},
		{
			"rueidis://h:1", fmt.Errorf(
				"%w: the server is a node of a cluster, and the client is for one "+
					"server: MOVED 1 g:1", errors.ErrUnsupported),
			"redis at h:1 is a node of a Cluster: MOVED 1 g:1",
		},
		{
			"redis+cluster://h:1", fmt.Errorf("%w: ERR This instance has cluster support disabled",
				errors.ErrUnsupported),
			"redis at h:1 is not a Cluster: ERR This instance has cluster support disabled",
		},
		{
			"redis://h:1/99", fmt.Errorf("%w: ERR DB index is out of range", errors.ErrUnsupported),
			"redis at h:1 has no such database: ERR DB index is out of range",
		},
		{
			"redis+sentinel://h:1/m",
			errors.New("redis: all sentinels specified in configuration are unreachable: ERR " +
				"unknown command 'sentinel'"),
			"redis at h:1 is not a Sentinel: redis: all sentinels specified in configuration are " +
				"unreachable: ERR unknown command 'sentinel'",
		},
		{
			"redis://h:1", fmt.Errorf("%w: unknown command", errors.ErrUnsupported),
			"redis at h:1 cannot do what is needed: unknown command",
		},
		{
			"rediss://h:1", fmt.Errorf("%w: LOADING", backend.ErrNotServing),
			"redis at h:1 is up, and does not serve: LOADING",
		},
		{
			"rueidiss://h:1", fmt.Errorf("%w: OOM", backend.ErrNotServing),
			"redis at h:1 is up, and does not serve: OOM",
		},
		{
			"etcds://h:1", errors.New(
				"connection error: authentication handshake failed: tls: failed to verify " +
					"certificate: x509: unknown authority"),
			"etcd at h:1 has a certificate that cannot be trusted: " +
				"connection error: authentication handshake failed: tls: failed to verify " +
				"certificate: x509: unknown authority",
		},
		{
			"rediss://h:1", errors.New("redis: no answer within 3s"),
			"cannot speak TLS with redis at h:1: redis: no answer within 3s",
		},
		{
			"redis://h:1", fmt.Errorf("%w: read: connection reset by peer", backend.ErrUnavailable),
			"redis at h:1 closes the connection: read: connection reset by peer",
		},
		{
			"redlock://?node=redis%3A%2F%2Fh1:1",
			fmt.Errorf("1 of 3 nodes agreed (redis://h1:1: %w; redis://h2:1: %w)", node(1),
				node(2)),
			"cannot reach a majority of the quorum's nodes: 1 of 3 nodes agreed " +
				"(redis://h1:1: dial tcp 127.0.0.1:1: connect: connection refused; redis://h2:1: " +
				"dial tcp 127.0.0.1:1: connect: connection refused)",
		},
		{
			"redlock://?node=redis%3A%2F%2Fh1:1", fmt.Errorf("node 1: %w", node(1)),
			"cannot reach a majority of the quorum's nodes: node 1: redis://h1:1: dial tcp " +
				"127.0.0.1:1: connect: connection refused",
		},
	} {
		u, err := config.ParseURL(c.store)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&storeError{u, c.err, true}).Error(); got != c.want {
			t.Errorf("%v is said as\n%s\nwant\n%s", c.err, got, c.want)
		}
	}
}
