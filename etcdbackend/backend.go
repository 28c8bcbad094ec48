package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/suspend"
	"github.com/holdfast-go/holdfast/waiting"
)

// DefaultRequestTimeout bounds a request when [Config] does not say otherwise.
const DefaultRequestTimeout = 3 * time.Second

// MinTTL is the shortest lease that etcd can count. A server may round it up to 1.5 times
// its election timeout.
const MinTTL = time.Second

// Config adjusts a [Backend]; the zero value is ready for use.
type Config struct {
	// Prefix starts every key. Clients with different prefixes do not see each other's locks, if
	// neither starts with the other. Default "holdfast/"; empty in the layout [Etcdctl].
	Prefix string

	// Layout of the keys, the same for all who share a lock. Default [Native].
	Layout Layout

	// RequestTimeout bounds each verb, also when ctx has no deadline. Default 3s.
	RequestTimeout time.Duration
}

// A Backend keeps locks in etcd. It is safe for concurrent use, and does not change the client it
// was given.
type Backend struct {
	backend.Base

	client *clientv3.Client
	owned  bool // opened by us, so closed by us
	cfg    Config
	scheme scheme
	id     string                        // of this client, in its slots
	slept  func(time.Time) time.Duration // suspend.Slept; a field for tests

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	// verbs in progress, and goroutines, which are started by those
	tasks sync.WaitGroup
	hub   waiting.Hub[backend.Wake] // topics: paths.queue, and paths.topic for claims with Queue

	term    atomic.Uint64 // the last raft term that was told of, see shadow.go
	streams atomic.Int64  // how many streams of watches were given up, see watching

	mu         sync.Mutex // guards the rest, and all local claims, leases and watchers
	closed     bool
	claims     map[string]*localClaim // by paths.topic
	slots      []string               // free
	slotsMade  int
	leases     map[int64]*lease    // the current ones, by length in seconds
	tombstones *lease              // their current lasting lease
	counters   *lease              // the same of counters
	shadows    *lease              // and of shadows
	watchers   map[string]*watcher // by paths.queue
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend on a client that the caller keeps and closes, after the backend. It sends
// nothing. The client may be shared with the rest of the program, but not through
// clientv3/namespace with a prefix that ends a lock's range.
//
// etcd's client repeats a transaction by itself if a proxy says too early that time is up. A client
// opened by URL is kept from that; with another, behind such a proxy, a release that was made may
// be reported as lost.
//
// It returns a *[backend.InvalidError] for a bad cfg or no client.
func New(client *clientv3.Client, cfg Config) (*Backend, error) {
	if client == nil {
		return nil, invalid("client", "", "is nil")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		client: client, cfg: cfg, id: backend.NewOwner(), slept: suspend.Slept,
		scheme: scheme{cfg.Prefix, cfg.Layout == Etcdctl},
		claims: map[string]*localClaim{}, watchers: map[string]*watcher{},
		leases: map[int64]*lease{},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

func (cfg Config) withDefaults() (Config, error) {
	switch cfg.Layout {
	case "":
		cfg.Layout = Native
	case Native, Etcdctl:
	default:
		return cfg, invalid("layout", string(cfg.Layout), "is neither native nor etcdctl")
	}
	if cfg.Prefix == "" && cfg.Layout == Native {
		cfg.Prefix = defaultPrefix
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.RequestTimeout < time.Millisecond {
		return cfg, invalid("request_timeout", cfg.RequestTimeout.String(), "is below 1ms")
	}
	if len(cfg.Prefix) > backend.MaxKey || strings.HasPrefix(cfg.Prefix, sideRoot) {
		return cfg, invalid("prefix", cfg.Prefix, "is too long, or kept by the layout for itself")
	}
	return cfg, nil
}

func invalid(field, value, reason string) error {
	return &backend.InvalidError{Field: field, Value: value, Reason: reason}
}

// Capabilities are exclusive claims without stored state or minimum tokens in the layout
// [Etcdctl], and otherwise all but Loss.
func (b *Backend) Capabilities() backend.Capabilities {
	native, name := !b.scheme.etcdctl, "etcd"
	if !native {
		name = "etcd?layout=etcdctl"
	}
	return backend.Capabilities{
		Name: name, Shared: native, Permit: native, Weight: native, Reentrant: native,
		State: native, NotBefore: native,
		MinToken: native, Fencing: true, Queue: true, Watch: true, Inspect: true, Observe: true,
		MinTTL: MinTTL,
	}
}

// Identity returns a number that was drawn for this cluster, for [backend.Backend]: the same from
// all members under all their names, and after restarts. It is kept below Prefix (in the layout
// [Etcdctl] below holdfast-side/), so clients with another prefix, who have other locks, see
// another one, and it is drawn anew once everything below Prefix was deleted. The first call ever
// writes it; after that each is one request, bounded by ctx and RequestTimeout.
//
// Copied data is the same cluster: of two that were restored from one snapshot, a quorum refuses
// the second. Where that is meant, delete the key <prefix>identity in one of them.
//
// etcd's own cluster id would not do: it is a hash of the members' first peer addresses, and two
// single servers with default flags have the same.
func (b *Backend) Identity(ctx context.Context) (id string, err error) {
	err = b.verb(ctx, "identity", func(ctx context.Context) error {
		// All agree, as the first transaction decides, whoever else makes it and however often it
		// is sent.
		key := b.scheme.identity()
		get := clientv3.OpGet(key)
		reply, _, err := b.commit(ctx, []clientv3.Cmp{absent(key)},
			[]clientv3.Op{clientv3.OpPut(key, backend.NewOwner()), get}, []clientv3.Op{get})
		if err != nil {
			return err
		}
		last := reply.Responses[len(reply.Responses)-1]
		id = "etcd:" + string(last.GetResponseRange().Kvs[0].Value)
		return nil
	})
	return id, err
}

// Close ends the watches and what is in progress, waits for it, and closes the client if the
// backend was opened by URL. The leases run out.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.tasks.Wait()
	if first && b.owned {
		return b.client.Close()
	}
	return nil
}

// begin counts a verb in, unless the backend is closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.tasks.Add(1)
	return true
}

// verb runs a verb, bounded by ctx, by RequestTimeout and by Close. The client heeds contexts in
// all it does.
func (b *Backend) verb(ctx context.Context, key string, run func(context.Context) error) error {
	if err := b.scheme.check(key); err != nil {
		return err
	}
	if !b.begin() {
		return backend.ErrClosed
	}
	defer b.tasks.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	return b.answer(ctx, run(bounded))
}

// answer makes one of the three answers of what came of a verb whose caller's context is ctx, or
// of one of its claims.
func (b *Backend) answer(ctx context.Context, err error) error {
	switch {
	case backend.AnswerOf(err) != backend.Unknown:
		return err
	case b.ctx.Err() != nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, clientv3.ErrNoAvailableEndpoints)):
		return backend.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return b.failure(err)
}

// resending makes a request, and makes it again each time a member has not answered within a
// while: the client's balancer takes the members in turn, and notices one that hangs only after 13
// seconds. It reports whether an earlier copy of the request was not answered; that may still be
// executed.
//
// A request that a member refuses for now ([forNow]) is made again after a pause. Once seven
// eighths of the time are over the error is the refusal: certainly nothing was executed, unless a
// copy was not answered, and then the error says both, and is unknown. An eighth is left to those
// who wait for the answer, and have a moment less than ctx.
func resending[T any](
	ctx context.Context, after time.Duration, request func(context.Context) (T, error),
) (reply T, resent bool, err error) {
	until, bounded := ctx.Deadline()
	enough := until.Add(-time.Until(until) / 8)
	longest := min(longestPause, after/4)
	pause := waiting.NewBackoff(longest/16, longest)
	var refusal error
	for {
		var last heard
		once, cancel := context.WithTimeout(context.WithValue(ctx, heard{}, &last), after)
		reply, err = request(once)
		// The server is told the deadline, and may be the first to notice.
		late := err != nil && (once.Err() != nil || isCode(err, codes.DeadlineExceeded))
		cancel()
		if late && forNow(last.answer) {
			err = last.answer // the client was about to make it again
		} else if late && last.refusal != nil {
			refusal = last.refusal // and the client has made it again
		}
		switch {
		case forNow(err):
			refusal = err
			if bounded && time.Now().After(enough) {
				return reply, resent, unsure(refusal, resent)
			}
			if !waiting.Pause(ctx, pause.Next()) {
				return reply, resent, unsure(refusal, resent)
			}
		case late && refusal != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return reply, resent, unsure(refusal, true) // safeguard: refused-then-silent
		case !late || ctx.Err() != nil:
			return reply, resent, err
		default:
			resent = true
		}
	}
}

// asking is resending for what changes nothing, or may be done twice: of three members one that
// hangs is asked four times in a row more often than one would like, and a hold is lost by that. So
// between two tries that wait as long as resending there are two that do not, which cost nobody a
// doubt.
func asking[T any](
	ctx context.Context, after time.Duration, request func(context.Context) (T, error),
) (reply T, err error) {
	// There is no other member.
	if until, bounded := ctx.Deadline(); bounded && time.Until(until) <= after {
		reply, _, err = resending(ctx, after, request)
		return reply, err
	}
	reply, _, err = resending(ctx, after+after/2, func(ctx context.Context) (T, error) {
		for range 2 { // safeguard: etcd-hops
			quick, cancel := context.WithTimeout(ctx, after/4)
			reply, err := request(quick)
			late := err != nil && (quick.Err() != nil || isCode(err, codes.DeadlineExceeded))
			cancel()
			if !late {
				return reply, err
			}
		}
		return request(ctx)
	})
	return reply, err
}

// longestPause bounds the sleep before a request is made again that was refused for now.
const longestPause = 100 * time.Millisecond

// A heard is in the context of a request, under its own type, for what was last answered to it. The
// client makes a request again by itself if a token is not known, and at the end of the time does
// not say why it did. Only a client that is opened by URL takes note of it ([sentOnce]).
type heard struct{ answer, refusal error } // the last one, and the last that was a refusal for now

// forNow reports whether a member did not take the request although the user may make it: it does
// not know the token, or the token is of before a change of the users. A member that is behind the
// others learns of a token late, one that was restarted has forgotten those that are not JWTs, and
// all forget one that is old. The client logs in again then, for its next request.
func forNow(err error) bool {
	return err != nil && isOneOf(err, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision)
}

// unsure is a refusal of a request, or, if an earlier copy of it may have been executed, an error
// that says so.
func unsure(refusal error, resent bool) error {
	if resent {
		//nolint:errorlint // it is not the answer
		return fmt.Errorf("a member did not answer, and another said: %v", refusal)
	}
	return refusal
}

// resendAfter is when an answer is late: never, if there is no other member to ask.
func (b *Backend) resendAfter() time.Duration {
	if len(b.client.Endpoints()) == 1 {
		return b.cfg.RequestTimeout
	}
	return b.cfg.RequestTimeout / 4
}

// commit makes a transaction, resending it. A refusal is told as one only if every copy of the
// request was refused.
func (b *Backend) commit(
	ctx context.Context, guards []clientv3.Cmp, then, otherwise []clientv3.Op,
) (reply *clientv3.TxnResponse, resent bool, err error) {
	reply, resent, err = resending(ctx, b.resendAfter(),
		func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return b.client.Txn(ctx).If(guards...).Then(then...).Else(otherwise...).Commit()
		})
	switch {
	case err == nil:
		b.see(reply.Header)
	case backend.AnswerOf(b.failure(err)) == backend.No: // safeguard: etcd-refused-copy
		err = unsure(err, resent)
	}
	return reply, resent, err
}

// ranges is what operations have read.
func ranges(replies []*etcdserverpb.ResponseOp) (kvs []*mvccpb.KeyValue) {
	for _, r := range replies {
		kvs = append(kvs, r.GetResponseRange().Kvs...)
	}
	return kvs
}

// Saved reads key's stored state, as [backend.Backend] says, bounded by ctx and RequestTimeout. In
// the layout [Etcdctl] there is none.
func (b *Backend) Saved(ctx context.Context, key string) (state []byte, err error) {
	if b.scheme.etcdctl {
		return b.Base.Saved(ctx, key)
	}
	if err := backend.ValidateKey(key); err != nil {
		return nil, err
	}
	err = b.verb(ctx, key, func(ctx context.Context) error {
		reply, err := b.get(ctx, b.scheme.paths(key).state())
		if err == nil {
			state = stateIn(reply.Kvs)
		}
		return err
	})
	return state, err
}

// readQueue reads the queue.
func (b *Backend) readQueue(ctx context.Context, p paths) (*queue, error) {
	if len(p.reads()) > 1 {
		reply, _, err := b.commit(ctx, nil, p.reads(), nil)
		if err != nil {
			return nil, err
		}
		return b.read(p, reply.Header, p.lastRead(reply))
	}
	reply, err := b.get(ctx, p.queue, clientv3.WithRange(p.end()))
	if err != nil {
		return nil, err
	}
	return b.read(p, reply.Header, reply.Kvs)
}

// A readQueue is what was read of a queue, or why it could not be understood.
type readQueue struct {
	queue *queue
	err   error
}

// maxReads is how many queues are read in one request; a server takes 128 operations.
func (s scheme) maxReads() int { return 100 / len(s.paths("any").reads()) }

// readQueues reads the queues of keys, several in one request.
func (b *Backend) readQueues(ctx context.Context, keys []string) ([]readQueue, error) {
	queues := make([]readQueue, 0, len(keys))
	for some := range slices.Chunk(keys, b.scheme.maxReads()) {
		var ops []clientv3.Op
		for _, key := range some {
			ops = append(ops, b.scheme.paths(key).reads()...)
		}
		reply, _, err := b.commit(ctx, nil, ops, nil)
		if err != nil {
			return nil, err
		}
		for i, key := range some {
			p, each := b.scheme.paths(key), len(ops)/len(some)
			q, err := b.read(p, reply.Header, ranges(reply.Responses[i*each:(i+1)*each]))
			queues = append(queues, readQueue{q, err})
		}
	}
	return queues, nil
}

// get reads keys, resending the request.
func (b *Backend) get(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	reply, err := asking(ctx, b.resendAfter(),
		func(ctx context.Context) (*clientv3.GetResponse, error) {
			return b.client.Get(ctx, key, opts...)
		})
	if err == nil {
		b.see(reply.Header)
	}
	return reply, err
}

// failure turns what the client returned into one of the three answers.
//
// Definite are only those errors that a server gives instead of executing the request: no
// permission, a token that it does not know, no space, too many requests. Unavailable,
// DeadlineExceeded, Canceled and all else are unknown, as the request may be in the Raft log. The
// error never wraps a context error, so that a caller does not take our RequestTimeout for its own
// deadline.
func (b *Backend) failure(err error) error {
	switch {
	// safeguard: etcd-token
	case forNow(err), isOneOf(err, rpctypes.ErrNoSpace, rpctypes.ErrTooManyRequests):
		return fmt.Errorf("%w: %w", backend.ErrNotServing, err)
	case isCode(err, codes.PermissionDenied), isCode(err, codes.Unauthenticated),
		isOneOf(err, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound,
			rpctypes.ErrAuthNotEnabled):
		return fmt.Errorf("%w: %w", backend.ErrDenied, err)
	case errors.Is(err, context.DeadlineExceeded), isCode(err, codes.DeadlineExceeded),
		errors.Is(err, context.Canceled), isCode(err, codes.Canceled):
		return fmt.Errorf("etcd: no answer within %v", b.cfg.RequestTimeout)
	}
	return fmt.Errorf("etcd: %w", err)
}

// isNoLease reports whether the server said that the lease does not exist, which is definite:
// nothing was written.
func isNoLease(err error) bool { return err != nil && isOneOf(err, rpctypes.ErrLeaseNotFound) }

func isOneOf(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(rpctypes.Error(err), target) {
			return true
		}
	}
	return false
}

// isCode looks for a gRPC code, in the two forms in which the client returns it.
func isCode(err error, code codes.Code) bool {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code() == code
	}
	return status.Code(err) == code
}
