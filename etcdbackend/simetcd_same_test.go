package etcdbackend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TestSimulatedEtcdIsLikeEtcd makes the same requests of a simulated etcd and of a real one, and
// compares replies and events.
func TestSimulatedEtcdIsLikeEtcd(t *testing.T) {
	seed := rand.Uint64()
	var simulated, real simSubject
	synctest.Test(t, func(t *testing.T) {
		s := newSimEtcd(1, simFaults{})
		defer s.close()
		simulated.client, _ = s.client(0)
		simulated.run(t, rand.New(rand.NewPCG(seed, 0)))
	})
	real.client = client(t, testserver.Etcd(t).Addr())
	real.run(t, rand.New(rand.NewPCG(seed, 0)))
	for n := range min(len(simulated.told), len(real.told)) {
		if simulated.told[n] != real.told[n] {
			t.Fatalf("seed %d, line %d, simulated and real:\n%s\n%s", seed, n, simulated.told[n],
				real.told[n])
		}
	}
	if a, b := len(simulated.told), len(real.told); a != b || a < 300 {
		t.Errorf("seed %d: %d lines and %d", seed, a, b)
	}
}

// A simSubject is an etcd, simulated or not, and what it has told.
type simSubject struct {
	client *clientv3.Client
	base   int64 // its first revision
	leases []clientv3.LeaseID
	told   []string
}

func (s *simSubject) tell(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

// rev is a revision counted from the first.
func (s *simSubject) rev(n int64) int64 {
	if n == 0 {
		return 0
	}
	return n - s.base
}

// lease is the number of a lease.
func (s *simSubject) lease(id int64) int {
	for i := range s.leases {
		if int64(s.leases[i]) == id {
			return i
		}
	}
	return 0
}

func (s *simSubject) run(t *testing.T, r *rand.Rand) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, err := s.client.Get(ctx, "same/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	want(t, "the first read", err, nil)
	s.base = first.Header.Revision
	s.leases = []clientv3.LeaseID{0}
	for _, ttl := range []int64{40, 50, 60} {
		reply, err := s.client.Grant(ctx, ttl)
		want(t, "Grant", err, nil)
		s.leases = append(s.leases, reply.ID)
		s.tell("granted for %d", reply.TTL)
	}
	gone, err := s.client.Grant(ctx, 40)
	want(t, "Grant", err, nil)
	_, err = s.client.Revoke(ctx, gone.ID)
	want(t, "Revoke", err, nil)
	s.leases = append(s.leases, gone.ID)
	live := s.client.Watch(ctx, "same/", clientv3.WithPrefix(), clientv3.WithCreatedNotify(),
		clientv3.WithFilterPut())
	if created := <-live; !created.Created {
		t.Fatalf("the first reply of a watch is %+v", created)
	}
	for range 300 {
		s.step(ctx, t, r)
	}
	for i, id := range s.leases[1:] {
		reply, err := s.client.TimeToLive(ctx, id)
		want(t, "TimeToLive", err, nil)
		s.tell("lease %d of %d lives: %v", i, reply.GrantedTTL, reply.TTL > 0)
		_, err = s.client.KeepAliveOnce(ctx, id)
		s.tell("keepalive: %v", err)
	}
	_, err = s.client.Revoke(ctx, s.leases[1])
	s.tell("revoked: %v", err)
	_, err = s.client.Txn(ctx).Then(clientv3.OpPut("same/end", "")).Commit()
	want(t, "the last put", err, nil)
	last, err := s.client.Txn(ctx).Then(clientv3.OpDelete("same/end")).Commit()
	want(t, "the last deletion", err, nil)
	s.events(t, "deletions", live, last.Header.Revision)
	s.events(t, "all", s.client.Watch(ctx, "same/", clientv3.WithPrefix(),
		clientv3.WithRev(s.base+1)), last.Header.Revision)
}

// step makes a transaction, or a read.
func (s *simSubject) step(ctx context.Context, t *testing.T, r *rand.Rand) {
	if r.IntN(5) == 0 {
		key, opts := s.where(r)
		switch r.IntN(4) {
		case 0:
			opts = append(opts, clientv3.WithKeysOnly())
		case 1:
			opts = append(opts, clientv3.WithCountOnly())
		case 2:
			opts = append(opts, clientv3.WithLimit(2))
		}
		reply, err := s.client.Get(ctx, key, opts...)
		want(t, "Get", err, nil)
		s.tell("at %d: %s", s.rev(reply.Header.Revision), s.ranged((*pb.RangeResponse)(reply)))
		return
	}
	var guards []clientv3.Cmp
	for range r.IntN(3) {
		guards = append(guards, s.guard(r))
	}
	reply, err := s.client.Txn(ctx).If(guards...).Then(s.ops(r)...).Else(s.ops(r)...).Commit()
	if err != nil {
		s.tell("refused: %v", err)
		return
	}
	line := fmt.Sprintf("at %d: %v", s.rev(reply.Header.Revision), reply.Succeeded)
	for _, one := range reply.Responses {
		switch {
		case one.GetResponseRange() != nil:
			line += s.ranged(one.GetResponseRange())
		case one.GetResponseDeleteRange() != nil:
			line += fmt.Sprintf(" %d deleted", one.GetResponseDeleteRange().Deleted)
		default:
			line += " put"
		}
	}
	s.tell("%s", line)
}

// where is a key, or a range.
func (s *simSubject) where(r *rand.Rand) (key string, opts []clientv3.OpOption) {
	key = "same/" + string(rune('a'+r.IntN(4)))
	switch r.IntN(3) {
	case 0:
		return "same/", []clientv3.OpOption{clientv3.WithPrefix()}
	case 1:
		return key, []clientv3.OpOption{clientv3.WithRange("same/d")}
	}
	return key, nil
}

func (s *simSubject) guard(r *rand.Rand) clientv3.Cmp {
	key, target := "same/"+string(rune('a'+r.IntN(4))), clientv3.CreateRevision
	if r.IntN(2) == 0 {
		target = clientv3.ModRevision
	}
	rev, result := s.base+int64(r.IntN(250)), []string{"=", "<", ">", "!="}[r.IntN(4)]
	if r.IntN(2) == 0 {
		rev = int64(r.IntN(2))
	}
	c := clientv3.Compare(target(key), result, rev)
	switch r.IntN(3) {
	case 0:
		c = c.WithRange("same/z")
	case 1:
		c = clientv3.Compare(clientv3.Version(key), result, r.IntN(4))
	}
	return c
}

// ops never write a key twice, which etcd refuses.
func (s *simSubject) ops(r *rand.Rand) (ops []clientv3.Op) {
	keys := r.Perm(4)
	for _, k := range keys[:1+r.IntN(3)] {
		key := "same/" + string(rune('a'+k))
		switch r.IntN(4) {
		case 0:
			ops = append(ops, clientv3.OpDelete(key))
		case 1:
			where, opts := s.where(r)
			ops = append(ops, clientv3.OpGet(where, opts...))
		default:
			lease := s.leases[max(0, r.IntN(6)-1)]
			ops = append(ops, clientv3.OpPut(key, fmt.Sprint(r.IntN(9)), clientv3.WithLease(lease)))
		}
	}
	return ops
}

func (s *simSubject) ranged(reply *pb.RangeResponse) string {
	line := fmt.Sprintf(" %d found, more %v", reply.Count, reply.More)
	for _, kv := range reply.Kvs {
		line += fmt.Sprintf(" %s=%q of lease %d, created at %d, written at %d, %d times;",
			kv.Key, kv.Value, s.lease(kv.Lease), s.rev(kv.CreateRevision), s.rev(kv.ModRevision),
			kv.Version)
	}
	return line
}

// events tells what a watch tells up to a revision, one line for each of its replies.
func (s *simSubject) events(t *testing.T, which string, watch clientv3.WatchChan, last int64) {
	t.Helper()
	for seen := int64(0); seen < last; {
		select {
		case reply := <-watch:
			want(t, "watch", reply.Err(), nil)
			for _, e := range reply.Events {
				seen = e.Kv.ModRevision
				s.tell("%s: %v %s=%q of lease %d, created at %d, written at %d", which, e.Type,
					e.Kv.Key, e.Kv.Value,
					s.lease(e.Kv.Lease), s.rev(e.Kv.CreateRevision), s.rev(e.Kv.ModRevision))
			}
		case <-time.After(patience):
			t.Fatalf("%s: no event after revision %d", which, s.rev(seen))
		}
	}
}
