package etcdbackend

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// covers: K4, K5, X2
func TestProof(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	for _, layout := range []Layout{Native, Etcdctl} {
		t.Run(string(layout), func(t *testing.T) { proof(t, c, on(t, c, Config{Layout: layout})) })
	}
}

func proof(t *testing.T, c *clientv3.Client, b *Backend) {
	name := key(t)
	writes := func(when string, proof clientv3.Cmp, may bool) {
		t.Helper()
		reply, err := c.Txn(t.Context()).If(proof).Then(clientv3.OpPut("data/"+name, when)).Commit()
		want(t, when, err, nil)
		if reply.Succeeded != may {
			t.Errorf("%s: written: %v, want %v", when, reply.Succeeded, may)
		}
	}
	proves := func(token uint64) clientv3.Cmp {
		t.Helper()
		p, err := b.Proof(t.Context(), name, token)
		want(t, "proof", err, nil)
		return p
	}
	lacks := func(when string, token uint64) {
		t.Helper()
		_, err := b.Proof(t.Context(), name, token)
		want(t, when, err, backend.ErrLost)
	}
	lacks("never held", 1<<tokenShift)
	first, second := claim(name), inLine(name)
	first.Reserve = 8
	one := acquired(t, b, first).Token
	before := proves(one)
	writes("held", before, true)
	writes("the third of a lease", proves(one+2), true)
	_, err := b.TryAcquire(t.Context(), second)
	want(t, "to be queued", err, backend.ErrHeld)
	writes("held, and another waits", before, true)
	q, err := b.readQueue(t.Context(), b.scheme.paths(name))
	want(t, "read", err, nil)
	lacks("waits", q.own(second).token())

	want(t, "release", storetest.Release(t.Context(), b, first), nil)
	writes("released, and the next one has done nothing yet", before, false)
	lacks("late", one)
	two := acquired(t, b, second).Token
	writes("let in", proves(two), true)
	writes("of the one before", before, false)
	want(t, "release", storetest.Release(t.Context(), b, second), nil)
	third := claim(name) // its entry may have the key that the first one had
	three := acquired(t, b, third).Token
	writes("of the first, again", before, false)
	writes("of the third", proves(three), true)

	_, err = b.Proof(t.Context(), "", three)
	want(t, "no key", err, backend.ErrInvalid)
}

// The hold goes with its lease, whoever ends it.
func TestProofEndsWithTheLease(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b := on(t, c, Config{})
	lock := claim(key(t))
	p, err := b.Proof(t.Context(), lock.Key, acquired(t, b, lock).Token)
	want(t, "proof", err, nil)
	leases, err := c.Leases(t.Context())
	want(t, "leases", err, nil)
	for _, l := range leases.Leases {
		_, err := c.Revoke(t.Context(), l.ID)
		want(t, "revoke", err, nil)
	}
	reply, err := c.Txn(t.Context()).If(p).Then(clientv3.OpPut("data", "x")).Commit()
	want(t, "transaction", err, nil)
	if reply.Succeeded {
		t.Error("written after the lease was revoked")
	}
}
