package redis

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// A Transport is a client library at work. Its methods may be called concurrently.
type Transport interface {
	// Run executes the script on keys, which are of one slot: by its SHA1, and by its Source when the server does not know it.
	// It returns when ctx is done or Config.RequestTimeout has passed, whatever is on the wire, and never sends anything twice
	// that the server may have executed. What it leaves behind is counted in the Gate.
	Run(ctx context.Context, s script.Script, keys, args []string) (reply any, err error)

	// RunAcknowledged is Run, and then waits on the same connection until so many replicas have what the script wrote, or
	// until limit has passed. It returns how many had it.
	RunAcknowledged(
		ctx context.Context, s script.Script, keys, args []string, replicas int, limit time.Duration,
	) (reply any, acknowledged int, err error)

	// Info returns the reply to INFO section of every primary. It is bounded as Run is.
	Info(ctx context.Context, section string) ([]string, error)

	// Messages returns a connection for pub/sub, which need not be there yet. It ends with ctx.
	Messages(ctx context.Context) Messages

	// Explain says what an error of this library means.
	Explain(err error) Failure
}

// A Store is what a backend is made of, on a Transport. Its Verbs are the backend's methods.
type Store struct {
	Layout  script.Layout
	Secrets []string // are in no error
	Gate    Gate

	t         Transport
	cfg       Config
	waiters   *Subscription
	cluster   bool        // see OnCluster
	checked   atomic.Bool // the server was found fit, see Check
	noPublish atomic.Bool // the user may not publish: nobody would be woken
}

// New checks cfg, puts defaults into it, and returns a Store that has no Transport yet. The error is an
// *[backend.InvalidError].
func New(cfg *Config) (*Store, error) {
	layout, err := cfg.layout()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: *cfg, Layout: layout.For(backend.NewOwner())}
	s.waiters = newSubscription(s)
	return s, nil
}

// OnCluster says that the servers are a cluster, before the first verb. It returns an *[backend.InvalidError] if the Config asks for what a
// cluster cannot have.
func (s *Store) OnCluster() error {
	s.cluster = true
	return s.cfg.RefuseCluster()
}

// checkKey refuses a key whose lock a cluster cannot keep.
func (s *Store) checkKey(key string) error {
	if !s.cluster {
		return nil
	}
	return s.Layout.CheckKey(key)
}

// Use sets the Transport, before the first verb.
func (s *Store) Use(t Transport) { s.t = t }

// Run executes a script unless the Store is closed, and turns what went wrong into one of the three answers.
func (s *Store) Run(ctx context.Context, script script.Script, keys, args []string) (any, error) {
	if !s.Gate.Enter() {
		return nil, backend.ErrClosed
	}
	defer s.Gate.Leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reply, err := s.t.Run(ctx, script, keys, args)
	if err != nil {
		return nil, s.Failure(ctx, err)
	}
	return reply, nil
}

// Close ends the subscription and waits for requests that are under way. It reports whether this is the first call.
func (s *Store) Close() (first bool) {
	first = s.Gate.Shut()
	s.waiters.close()
	s.Gate.Wait()
	return first
}

// Waiters returns the subscription of all who watch.
func (s *Store) Waiters() *Subscription { return s.waiters }
