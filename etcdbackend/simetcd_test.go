package etcdbackend

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// A simEtcd is a cluster of three etcd members without a network, for bubbles of virtual time. It
// has what this backend uses of etcd, and panics at the rest:
//
//   - keys with their revisions, transactions, and watches, which may begin in the past;
//   - leases, of which the leader alone keeps the books: when each ends. It revokes those that have
//     ended twice a second. A new leader gives every lease its whole length anew, and the time of
//     an election;
//   - the Raft term in the header of each reply, which is that of the last entry which the
//     answering member has applied.
//
// A client asks the members in turn. What arrives at a member that is paused, or must go on to a
// leader that is, waits for the end of that, and may be executed then, although nobody waits for
// the answer any more.
//
// What a request meets on its way follows from the seed, from the moment, and from what is asked by
// whom.
type simEtcd struct {
	simFaults
	seed  uint64
	start time.Time
	stop  chan struct{} // closed when nobody asks any more
	tasks sync.WaitGroup

	mu      sync.Mutex // guards the rest, and members, leases and watches
	quiet   bool       // no faults any more
	rev     int64
	kvs     map[string]*mvccpb.KeyValue
	log     []*mvccpb.Event // all there ever were
	leases  map[int64]*simLease
	granted int64
	term    uint64
	members []*simMember
	leader  *simMember    // may be paused: then there is none
	changed chan struct{} // closed when somebody was paused, goes on or was elected, and made anew
	watches []*simWatch
	revoked []int64 // leases that a leader of the past has revoked early
	many    int     // attempts for several locks that were executed
}

// simFaults are what may go wrong. The zero value is a cluster in which nothing does but by order.
type simFaults struct {
	lost float64 // how many replies are lost
	slow float64 // how many requests take up to two seconds

	// early has a leader that was paused and deposed first revoke what has ended by its own books,
	// when it goes on (etcd #15247). In them no lease was renewed while it was paused.
	early bool

	// hasty has it revoke whatever was ever kept alive and that it knows, as if its pause had been
	// long enough: clients have no time to move their holds to leases that it does not know.
	hasty bool
}

const (
	simElection = time.Second
	simMinTTL   = 2 // seconds, as etcd has it: one and a half elections
)

type simMember struct {
	index  int
	paused bool
	term   uint64
	books  map[int64]time.Time // of a leader that was paused
}

type simLease struct {
	id, ttl int64
	ends    time.Time // by the leader's books
	kept    bool      // alive, at least once
	keys    map[string]bool
}

func newSimEtcd(seed uint64, f simFaults) *simEtcd {
	s := &simEtcd{
		simFaults: f, seed: seed, start: time.Now(), stop: make(chan struct{}),
		changed: make(chan struct{}),
		rev:     1, term: 2, kvs: map[string]*mvccpb.KeyValue{}, leases: map[int64]*simLease{},
	}
	for i := range 3 {
		m := &simMember{index: i, term: s.term}
		s.members = append(s.members, m)
		s.tasks.Go(func() { s.revokes(m) })
	}
	s.leader = s.members[0]
	return s
}

func (s *simEtcd) close() {
	close(s.stop)
	s.tasks.Wait()
}

// dice are for what befalls one request.
func (s *simEtcd) dice(format string, args ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, format, args...)
	return rand.New(rand.NewPCG(s.seed^h.Sum64(), uint64(time.Since(s.start))))
}

// The leases.

// revokes is what a member does with the leases that have ended while it leads.
func (s *simEtcd) revokes(m *simMember) {
	time.Sleep(simPart(s.dice("member %d", m.index), 500*time.Millisecond))
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
		s.mu.Lock()
		if s.leader == m && !m.paused {
			s.revokeEnded(s.books())
		}
		s.mu.Unlock()
	}
}

// books are when each lease ends, by the leader. The caller has mu.
func (s *simEtcd) books() map[int64]time.Time {
	books := map[int64]time.Time{}
	for id, l := range s.leases {
		books[id] = l.ends
	}
	return books
}

// revokeEnded revokes all leases that have ended by some books, each in a revision of its own. The
// caller has mu.
func (s *simEtcd) revokeEnded(books map[int64]time.Time) (revoked []int64) {
	for _, id := range slices.Sorted(maps.Keys(books)) {
		if s.leases[id] != nil && !time.Now().Before(books[id]) {
			s.revoke(id)
			revoked = append(revoked, id)
		}
	}
	return revoked
}

func (s *simEtcd) revoke(id int64) {
	t := s.begin()
	for _, key := range slices.Sorted(maps.Keys(s.leases[id].keys)) {
		t.drop(key)
	}
	t.end()
	delete(s.leases, id)
}

// The leaders.

// pause stops the leader and returns it.
func (s *simEtcd) pause() *simMember {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.leader
	m.paused, m.books = true, s.books()
	for id, l := range s.leases {
		if s.hasty && l.kept {
			m.books[id] = time.Now()
		}
	}
	s.change()
	return m
}

// change tells those who wait. The caller has mu.
func (s *simEtcd) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// elect has another member lead, the next or the one after it. The others apply the first entry of
// the new term somewhat later.
func (s *simEtcd) elect(r *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = s.members[(s.leader.index+1+r.IntN(2))%len(s.members)]
	s.term++
	s.leader.term = s.term
	for _, l := range s.leases {
		l.ends = time.Now().Add(simSeconds(l.ttl) + simElection)
	}
	for _, m := range s.members {
		s.catchUp(m, simPart(r, 300*time.Millisecond))
	}
	s.change()
}

// catchUp has a member apply what there is now after some time, unless it is paused then.
func (s *simEtcd) catchUp(m *simMember, after time.Duration) {
	term := s.term
	time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !m.paused {
			m.term = max(m.term, term)
		}
	})
}

// resume has a member go on that was paused as the leader. Half of the watches that it serves have
// been cut off by then.
func (s *simEtcd) resume(m *simMember, r *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early && s.leader != m {
		s.revoked = append(s.revoked, s.revokeEnded(m.books)...)
	}
	m.paused, m.books = false, nil
	s.catchUp(m, simPart(r, 300*time.Millisecond))
	for _, w := range s.watches {
		if w.member == m && r.IntN(2) == 0 {
			w.add(clientv3.WatchResponse{Canceled: true, CancelReason: "etcdserver: no leader"},
				s.term, 0)
		}
	}
	s.change()
}

// The keys. All methods of a step are called with mu.

// A simStep is a transaction at work, or something else that writes.
type simStep struct {
	s      *simEtcd
	events []*mvccpb.Event
}

func (s *simEtcd) begin() *simStep { return &simStep{s: s} }

// end makes a revision of what was written.
func (t *simStep) end() {
	if len(t.events) == 0 {
		return
	}
	s := t.s
	s.rev++
	s.log = append(s.log, t.events...)
	for _, w := range s.watches {
		w.tell(t.events, s.term)
	}
}

// get returns the keys of a range, in order.
func (t *simStep) get(key, end []byte) (found []*mvccpb.KeyValue) {
	if len(end) == 0 {
		if kv := t.s.kvs[string(key)]; kv != nil {
			found = append(found, kv)
		}
		return found
	}
	for name, kv := range t.s.kvs {
		if within([]byte(name), key, end) {
			found = append(found, kv)
		}
	}
	slices.SortFunc(found, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return found
}

func within(name, key, end []byte) bool {
	if len(end) == 0 {
		return bytes.Equal(name, key)
	}
	return bytes.Compare(name, key) >= 0 &&
		(bytes.Equal(end, []byte{0}) || bytes.Compare(name, end) < 0)
}

func (t *simStep) put(r *pb.PutRequest) *pb.PutResponse {
	if r.PrevKv || r.IgnoreLease || r.IgnoreValue {
		panic("simetcd: a put that is not simulated")
	}
	s, key := t.s, string(r.Key)
	kv := &mvccpb.KeyValue{
		Key: r.Key, Value: r.Value, Lease: r.Lease, Version: 1, CreateRevision: s.rev +
			1, ModRevision: s.rev + 1,
	}
	if old := s.kvs[key]; old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
		t.detach(old)
	}
	if l := s.leases[r.Lease]; l != nil {
		l.keys[key] = true
	}
	s.kvs[key] = kv
	t.events = append(t.events, &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv})
	return &pb.PutResponse{}
}

func (t *simStep) detach(kv *mvccpb.KeyValue) {
	if l := t.s.leases[kv.Lease]; l != nil {
		delete(l.keys, string(kv.Key))
	}
}

// drop deletes a key that is there.
func (t *simStep) drop(key string) {
	t.detach(t.s.kvs[key])
	delete(t.s.kvs, key)
	gone := &mvccpb.KeyValue{Key: []byte(key), ModRevision: t.s.rev + 1}
	t.events = append(t.events, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: gone})
}

func (t *simStep) delete(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	if r.PrevKv {
		panic("simetcd: a deletion that is not simulated")
	}
	found := t.get(r.Key, r.RangeEnd)
	for _, kv := range found {
		t.drop(string(kv.Key))
	}
	return &pb.DeleteRangeResponse{Deleted: int64(len(found))}
}

func (t *simStep) read(r *pb.RangeRequest) *pb.RangeResponse {
	if r.Revision != 0 || r.SortTarget != pb.RangeRequest_KEY ||
		r.SortOrder == pb.RangeRequest_DESCEND ||
		r.MinModRevision|r.MaxModRevision|r.MinCreateRevision|r.MaxCreateRevision != 0 {
		panic("simetcd: a read that is not simulated")
	}
	found := t.get(r.Key, r.RangeEnd)
	reply := &pb.RangeResponse{Count: int64(len(found))}
	if r.CountOnly {
		return reply
	}
	if r.Limit > 0 && int64(len(found)) > r.Limit {
		found, reply.More = found[:r.Limit], true
	}
	for _, kv := range found {
		if r.KeysOnly {
			kv = &mvccpb.KeyValue{
				Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
				Version: kv.Version,
			}
		}
		reply.Kvs = append(reply.Kvs, kv)
	}
	return reply
}

// A simPlan is what a transaction does, by its compares: those of transactions in it, too, come
// before anything is done.
type simPlan struct {
	succeeded bool
	ops       []*pb.RequestOp
	within    []*simPlan // of each that is a transaction
}

func (t *simStep) plan(r *pb.TxnRequest) *simPlan {
	p := &simPlan{ops: r.Failure}
	if p.succeeded = !slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool {
		return !t.compare(c)
	}); p.succeeded {
		p.ops = r.Success
	}
	for _, op := range p.ops {
		if one := op.GetRequestTxn(); one != nil {
			p.within = append(p.within, t.plan(one))
		}
	}
	return p
}

// lacksLease reports whether a lease is not there to which a plan attaches a key.
func (t *simStep) lacksLease(p *simPlan) bool {
	return slices.ContainsFunc(p.within, t.lacksLease) ||
		slices.ContainsFunc(p.ops, func(op *pb.RequestOp) bool {
			lease := op.GetRequestPut().GetLease()
			return lease != 0 && t.s.leases[lease] == nil
		})
}

// txn makes a transaction, or nothing of it if it lacks a lease.
func (t *simStep) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	p := t.plan(r)
	if t.lacksLease(p) {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	return t.execute(p), nil
}

func (t *simStep) execute(p *simPlan) *pb.TxnResponse {
	reply := &pb.TxnResponse{Succeeded: p.succeeded}
	for _, op := range p.ops {
		one := &pb.ResponseOp{}
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			one.Response = &pb.ResponseOp_ResponsePut{ResponsePut: t.put(op.RequestPut)}
		case *pb.RequestOp_RequestRange:
			one.Response = &pb.ResponseOp_ResponseRange{ResponseRange: t.read(op.RequestRange)}
		case *pb.RequestOp_RequestDeleteRange:
			one.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: t.delete(
				op.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			one.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: t.execute(p.within[0])}
			p.within = p.within[1:]
		default:
			panic("simetcd: an operation that is not simulated")
		}
		reply.Responses = append(reply.Responses, one)
	}
	return reply
}

// compare says whether all keys of a range compare. One that is not there has all revisions 0.
func (t *simStep) compare(c *pb.Compare) bool {
	found := t.get(c.Key, c.RangeEnd)
	if len(found) == 0 {
		if c.Target == pb.Compare_VALUE {
			return false
		}
		found = []*mvccpb.KeyValue{{}}
	}
	for _, kv := range found {
		var is int
		switch c.Target {
		case pb.Compare_VALUE:
			is = bytes.Compare(kv.Value, c.GetValue())
		case pb.Compare_CREATE:
			is = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
		case pb.Compare_MOD:
			is = cmp.Compare(kv.ModRevision, c.GetModRevision())
		case pb.Compare_VERSION:
			is = cmp.Compare(kv.Version, c.GetVersion())
		case pb.Compare_LEASE:
			is = cmp.Compare(kv.Lease, c.GetLease())
		}
		fits := map[pb.Compare_CompareResult]bool{
			pb.Compare_EQUAL: is == 0, pb.Compare_NOT_EQUAL: is != 0, pb.Compare_GREATER: is > 0,
			pb.Compare_LESS: is < 0,
		}
		if !fits[c.Result] {
			return false
		}
	}
	return true
}

// A simConn is the connections of one process to all members.
type simConn struct {
	pb.KVClient    // nil: what is not simulated
	pb.LeaseClient // nil
	s              *simEtcd
	index          int

	turn   int        // the member that is asked next; guarded by simEtcd.mu, as is the rest
	dead   bool       // the process is: nothing leaves or reaches it
	moment *simMoment // the latest
}

// A simMoment is the requests of a process that are made at one moment.
type simMoment struct {
	at     time.Time
	asked  []string // sorted
	passed map[string]int
}

// client is the client of a program, and what it has in the place of connections.
func (s *simEtcd) client(index int) (*clientv3.Client, *simConn) {
	conn := &simConn{s: s, index: index, turn: index}
	c := clientv3.NewCtxClient(context.Background())
	c.KV = clientv3.NewKVFromKVClient(conn, c)
	c.Lease = clientv3.NewLeaseFromLeaseClient(conn, c, time.Second)
	// etcd's own watcher has a goroutine wait for a channel from outside of every bubble.
	c.Watcher = conn
	return c, conn
}

// kill cuts the process off.
func (c *simConn) kill() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.dead = true
}

func (c *simConn) killed() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.dead
}

// next is the member whose turn it is. The caller has mu.
func (c *simConn) next() *simMember {
	c.turn++
	return c.s.members[c.turn%len(c.s.members)]
}

// way is how long a message is on its way.
func (c *simConn) way(r *rand.Rand) time.Duration {
	c.s.mu.Lock()
	slow := c.s.slow
	if c.s.quiet {
		slow = 0
	}
	c.s.mu.Unlock()
	if r.Float64() < slow {
		return simPart(r, 2*time.Second)
	}
	return 100*time.Microsecond + simPart(r, 4*time.Millisecond)
}

// dice are for a request about a key or a lease. Goroutines that ask at one moment run in any
// order, so their requests leave a nanosecond apart, in the order of what they ask.
func (c *simConn) dice(verb string, about ...any) *rand.Rand {
	s, what := c.s, verb+fmt.Sprint(about...)
	s.mu.Lock()
	if now := time.Now(); c.moment == nil || !c.moment.at.Equal(now) {
		c.moment = &simMoment{at: now, passed: map[string]int{}}
	}
	m := c.moment
	i, _ := slices.BinarySearch(m.asked, what)
	m.asked = slices.Insert(m.asked, i, what)
	s.mu.Unlock()
	time.Sleep(time.Nanosecond) // virtual time goes on when all have asked
	s.mu.Lock()
	i, _ = slices.BinarySearch(m.asked, what)
	i += m.passed[what]
	m.passed[what]++
	s.mu.Unlock()
	time.Sleep(time.Duration(i))
	return s.dice("%d %s", c.index, verb)
}

// serve has a member execute a request, with mu, and returns when its reply is here. before is the
// header as the member would make it before it asks the leader. If do reports false it is called
// again later.
func (c *simConn) serve(ctx context.Context, dice *rand.Rand,
	do func(m *simMember, before *pb.ResponseHeader) bool,
) error {
	answer := make(chan struct{})
	c.s.tasks.Go(func() {
		if c.killed() {
			return
		}
		time.Sleep(c.way(dice))
		answered := c.arrived(dice, do)
		time.Sleep(c.way(dice))
		if answered && !c.killed() {
			close(answer)
		}
	})
	select {
	case <-answer:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// arrived reports whether the request is answered.
func (c *simConn) arrived(dice *rand.Rand,
	do func(m *simMember, before *pb.ResponseHeader) bool,
) bool {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	m := c.next()
	waited := s.await(dice, func() bool { return m.paused })
	for before := s.header(m); ; {
		waited = s.await(dice, func() bool { return m.paused || s.leader.paused }) || waited
		if stopped(s.stop) || waited && !s.quiet && dice.IntN(2) == 0 {
			return false // it is dropped
		}
		if do(m, before) {
			return s.quiet || dice.Float64() >= s.lost
		}
		s.mu.Unlock()
		time.Sleep(50*time.Millisecond + simPart(dice, 10*time.Millisecond))
		s.mu.Lock()
	}
}

// await waits until something is over, and reports whether it had to. The caller has mu, and has it
// not while this waits.
func (s *simEtcd) await(dice *rand.Rand, trouble func() bool) (waited bool) {
	for trouble() && !stopped(s.stop) {
		waited = true
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.stop:
		}
		time.Sleep(time.Millisecond + simPart(dice, 4*time.Millisecond))
		s.mu.Lock()
	}
	return waited
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// header is that of a reply of a member.
func (s *simEtcd) header(m *simMember) *pb.ResponseHeader {
	return &pb.ResponseHeader{
		ClusterId: 1, MemberId: uint64(m.index + 1), Revision: s.rev,
		RaftTerm: m.term,
	}
}

// applied is the header of a reply to what went through the log, or was read after all in it.
func (s *simEtcd) applied(m *simMember) *pb.ResponseHeader {
	m.term = s.term
	return s.header(m)
}

func (c *simConn) Range(ctx context.Context, r *pb.RangeRequest,
	_ ...grpc.CallOption,
) (*pb.RangeResponse, error) {
	var reply *pb.RangeResponse
	err := c.serve(ctx, c.dice("get", plain(r.Key)), func(m *simMember, _ *pb.ResponseHeader) bool {
		reply = c.s.begin().read(r)
		reply.Header = c.s.applied(m)
		return true
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// writtenBy names what a transaction may write.
func writtenBy(r *pb.TxnRequest) (about string) {
	for _, op := range slices.Concat(r.GetSuccess(), r.GetFailure()) {
		about += plain(op.GetRequestPut().GetKey()) + plain(op.GetRequestDeleteRange().GetKey()) +
			writtenBy(op.GetRequestTxn())
	}
	return about
}

func (c *simConn) Txn(ctx context.Context, r *pb.TxnRequest,
	_ ...grpc.CallOption,
) (*pb.TxnResponse, error) {
	about, many := writtenBy(r), slices.ContainsFunc(r.Failure, func(op *pb.RequestOp) bool {
		return op.GetRequestTxn() != nil
	})
	var reply *pb.TxnResponse
	var refused error
	err := c.serve(ctx, c.dice("txn", about), func(m *simMember, _ *pb.ResponseHeader) bool {
		t := c.s.begin()
		if reply, refused = t.txn(r); refused == nil {
			t.end()
			reply.Header = c.s.applied(m)
		}
		if many {
			c.s.many++
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return reply, refused
}

func (c *simConn) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest,
	_ ...grpc.CallOption,
) (*pb.LeaseGrantResponse, error) {
	var reply *pb.LeaseGrantResponse
	err := c.serve(ctx, c.dice("grant", r.TTL), func(m *simMember, _ *pb.ResponseHeader) bool {
		s := c.s
		s.granted++
		l := &simLease{id: s.granted, ttl: max(r.TTL, simMinTTL), keys: map[string]bool{}}
		l.ends = time.Now().Add(simSeconds(l.ttl))
		s.leases[l.id] = l
		reply = &pb.LeaseGrantResponse{Header: s.applied(m), ID: l.id, TTL: l.ttl}
		return true
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

func (c *simConn) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest,
	_ ...grpc.CallOption,
) (*pb.LeaseRevokeResponse, error) {
	var reply *pb.LeaseRevokeResponse
	var refused error
	err := c.serve(ctx, c.dice("revoke", r.ID), func(m *simMember, _ *pb.ResponseHeader) bool {
		if c.s.leases[r.ID] == nil {
			refused = rpctypes.ErrGRPCLeaseNotFound
			return true
		}
		c.s.revoke(r.ID)
		reply = &pb.LeaseRevokeResponse{Header: c.s.applied(m)}
		return true
	})
	if err != nil {
		return nil, err
	}
	return reply, refused
}

// LeaseTimeToLive is answered by the leader's books, as keepalives are.
func (c *simConn) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest,
	_ ...grpc.CallOption,
) (*pb.LeaseTimeToLiveResponse, error) {
	var reply *pb.LeaseTimeToLiveResponse
	err := c.serve(ctx, c.dice("ttl", r.ID), func(m *simMember, _ *pb.ResponseHeader) bool {
		reply = &pb.LeaseTimeToLiveResponse{Header: c.s.applied(m), ID: r.ID, TTL: -1}
		if l := c.s.leases[r.ID]; l != nil {
			reply.TTL, reply.GrantedTTL = int64(time.Until(l.ends)/time.Second), l.ttl
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

func (c *simConn) LeaseKeepAlive(ctx context.Context,
	_ ...grpc.CallOption,
) (pb.Lease_LeaseKeepAliveClient, error) {
	return &simKeepAlive{conn: c, ctx: ctx}, nil
}

// A simKeepAlive is a stream with one request, as KeepAliveOnce makes it.
type simKeepAlive struct {
	grpc.ClientStream // nil
	conn              *simConn
	ctx               context.Context
	id                int64
}

func (k *simKeepAlive) Send(r *pb.LeaseKeepAliveRequest) error {
	k.id = r.ID
	return nil
}

func (k *simKeepAlive) CloseSend() error { return nil }

// Recv has the leader keep the lease alive. The header is made by the member that was asked before
// it asks the leader. A lease that has ended and is still there is about to be revoked.
func (k *simKeepAlive) Recv() (*pb.LeaseKeepAliveResponse, error) {
	var reply *pb.LeaseKeepAliveResponse
	s := k.conn.s
	err := k.conn.serve(k.ctx, k.conn.dice("keep", k.id),
		func(_ *simMember, before *pb.ResponseHeader) bool {
			reply = &pb.LeaseKeepAliveResponse{Header: before, ID: k.id}
			l := s.leases[k.id]
			switch {
			case l == nil:
				return true
			case !time.Now().Before(l.ends):
				return false
			}
			l.ends, l.kept = time.Now().Add(simSeconds(l.ttl)), true
			reply.TTL = l.ttl
			return true
		})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// A simWatch is a watch that a member serves.
type simWatch struct {
	s      *simEtcd
	op     clientv3.Op
	member *simMember
	dice   *rand.Rand

	queue []simNews     // guarded by simEtcd.mu
	more  chan struct{} // has something in its one slot when the queue has
}

// A simNews is what a watch is told, and when.
type simNews struct {
	reply clientv3.WatchResponse
	term  uint64 // that the member has reached by then
	rev   int64
	at    time.Time
}

// tell takes note of the events of one revision.
func (w *simWatch) tell(events []*mvccpb.Event, term uint64) {
	var told []*mvccpb.Event
	for _, e := range events {
		filtered := e.Type == mvccpb.Event_PUT && w.op.IsFilterPut() ||
			e.Type == mvccpb.Event_DELETE && w.op.IsFilterDelete()
		if within(e.Kv.Key, w.op.KeyBytes(), w.op.RangeBytes()) && !filtered {
			told = append(told, e)
		}
	}
	if told != nil {
		w.add(clientv3.WatchResponse{Events: told}, term, told[0].Kv.ModRevision)
	}
}

func (w *simWatch) add(reply clientv3.WatchResponse, term uint64, rev int64) {
	at := time.Now().Add(100*time.Microsecond + simPart(w.dice, 4*time.Millisecond))
	if n := len(w.queue); n > 0 && !at.After(w.queue[n-1].at) {
		at = w.queue[n-1].at.Add(1)
	}
	w.queue = append(w.queue, simNews{reply, term, rev, at})
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Watch begins at the present, or in the past.
func (c *simConn) Watch(ctx context.Context, key string,
	opts ...clientv3.OpOption,
) clientv3.WatchChan {
	told := make(chan clientv3.WatchResponse)
	w := &simWatch{s: c.s, op: clientv3.OpGet(key, opts...), more: make(chan struct{}, 1)}
	c.s.tasks.Go(func() {
		defer close(told)
		w.dice = c.dice("watch", key)
		time.Sleep(c.way(w.dice))
		if c.killed() {
			return
		}
		w.register(c)
		defer w.leave()
		for ctx.Err() == nil && !stopped(c.s.stop) {
			news, wait, on := w.first()
			if !on {
				select {
				case <-wait:
				case <-ctx.Done():
				case <-c.s.stop:
				}
				continue
			}
			if d := time.Until(news.at); d > 0 {
				time.Sleep(d)
			}
			if c.killed() {
				return
			}
			select {
			case told <- news.reply:
			case <-ctx.Done():
			}
			if news.reply.Canceled {
				return
			}
		}
	})
	return told
}

// register begins with what there was from a revision on.
func (w *simWatch) register(c *simConn) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	w.member = c.next()
	s.await(w.dice, func() bool { return w.member.paused || s.leader.paused })
	if w.op.IsCreatedNotify() {
		w.add(clientv3.WatchResponse{Created: true}, s.term, s.rev)
	}
	for i := 0; i < len(s.log) && w.op.Rev() > 0; {
		rev, begin := s.log[i].Kv.ModRevision, i
		for i < len(s.log) && s.log[i].Kv.ModRevision == rev {
			i++
		}
		if rev >= w.op.Rev() {
			w.tell(s.log[begin:i], s.term)
		}
	}
	s.watches = append(s.watches, w)
}

func (w *simWatch) leave() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.watches = slices.DeleteFunc(w.s.watches, func(o *simWatch) bool { return o == w })
}

// first takes what is to be told next. If there is nothing, or the member is paused, it returns
// what to wait for.
func (w *simWatch) first() (news simNews, wait <-chan struct{}, on bool) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.member.paused:
		return news, s.changed, false
	case len(w.queue) == 0:
		return news, w.more, false
	}
	news, w.queue = w.queue[0], w.queue[1:]
	w.member.term = max(w.member.term, news.term)
	news.reply.Header = s.header(w.member)
	news.reply.Header.Revision = news.rev
	return news, nil, true
}

func (c *simConn) RequestProgress(context.Context) error { panic("simetcd: not simulated") }

// Close has two interfaces of the client, neither with anything to close.
func (c *simConn) Close() error { return nil }

// plain is a key without what is drawn anew in each run: of a slot its number is left, see
// takeSlot.
func plain(key []byte) string {
	name := key[bytes.LastIndexByte(key, '/')+1:]
	_, number, _ := bytes.Cut(name, []byte("."))
	return string(key[:len(key)-len(name)]) + string(number)
}

func simSeconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// simPart draws a part of d.
func simPart(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Float64() * float64(d))
}
