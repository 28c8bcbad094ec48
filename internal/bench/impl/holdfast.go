package impl

import (
	"context"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/etcdbackend" // etcd://
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend"   // redis://
	_ "github.com/holdfast-go/holdfast/redlock"        // redlock://
	_ "github.com/holdfast-go/holdfast/rueidisbackend" // rueidis://
	"github.com/holdfast-go/holdfast/tracing"
)

// What a name of ours ends in.
const (
	Strict    = "-strict" // the store sees every acquisition
	Traced    = "-traced" // every span is sampled, and dropped
	Shared    = "-shared"
	Permit    = "-permit"
	Reentrant = "-reentrant"
	Holder    = "-holder" // renews so rarely that no cell sees it

	// What any name of those ends in that lock several keys at once, for each that they are asked
	// for.
	Ten   = "-all10"
	Fifty = "-all50"
)

// several are the keys for one that a participant of that name locks; nil if that alone.
func several(name, key string) (all []string) {
	n := map[bool]int{strings.HasSuffix(name, Ten): 10, strings.HasSuffix(name, Fifty): 50}[true]
	for i := range n {
		all = append(all, key+"/"+strconv.Itoa(i))
	}
	return all
}

func init() {
	register(
		holdfast("holdfast+goredis", Goredis, "redis://"),
		holdfast("holdfast+rueidis", Rueidis, "rueidis://"),
		holdfast("holdfast+goredis"+Strict, Goredis, "redis://"),
		holdfast("holdfast+rueidis"+Strict, Rueidis, "rueidis://"),
		holdfast("holdfast+goredis"+Holder, Goredis, "redis://"),
		holdfast("holdfast+rueidis"+Holder, Rueidis, "rueidis://"),
		holdfast("holdfast+goredis"+Ten, Goredis, "redis://"),
		holdfast("holdfast+rueidis"+Ten, Rueidis, "rueidis://"),
		holdfast("holdfast+goredis"+Fifty, Goredis, "redis://"),
		holdfast("holdfast+rueidis"+Fifty, Rueidis, "rueidis://"),
		holdfast("holdfast+goredis"+Traced, Goredis, "redis://"),
		holdfast("holdfast+goredis"+Shared, Goredis, "redis://", locker.Shared()),
		holdfast("holdfast+goredis"+Permit, Goredis, "redis://", locker.Permit(2)),
		holdfast("holdfast+goredis"+Reentrant, Goredis, "redis://", locker.Reentrant("waiter")),
		holdfast("holdfast+rueidis"+Shared, Rueidis, "rueidis://", locker.Shared()),
		holdfast("holdfast+rueidis"+Permit, Rueidis, "rueidis://", locker.Permit(2)),
		holdfast("holdfast+rueidis"+Reentrant, Rueidis, "rueidis://", locker.Reentrant("waiter")),
		holdfast("holdfast+redlock+goredis", Goredis, "redlock://redis://"),
		holdfast("holdfast+redlock+rueidis", Rueidis, "redlock://rueidis://"),
		holdfast("holdfast+etcd", Etcd, "etcd://"),
	)
}

// holdfast is ourselves on the backend of a URL scheme. This is the only file that uses holdfast's
// API, and no more of it than also older commits have: -before compiles it against one.
func holdfast(name, client, scheme string, opts ...locker.Option) Impl {
	settings := scheme + ", locker.Config{TTL: 8s}, everything else at its default"
	cfg := locker.Config{TTL: TTL}
	if strings.HasSuffix(name, Strict) {
		cfg.Wait.Passes = -1
		settings = scheme + ", locker.Config{TTL: 8s}, Wait.Passes: -1"
	}
	if strings.HasSuffix(name, Holder) {
		cfg.TTL = 2 * time.Minute
		settings = scheme + ", locker.Config{TTL: 2m}, everything else at its default"
	}
	return Impl{
		Name: name, Role: Ours, Client: client, Settings: settings,
		Sent: []string{
			"evalsha", "eval", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "ping",
			"hello",
		},
		Open: func(ctx context.Context, addr string) (Client, error) {
			b, err := backend.Open(ctx, address(scheme, addr))
			if err != nil {
				return nil, err
			}
			cfg := cfg
			if strings.HasSuffix(name, Traced) {
				tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(dropped{}))
				// Older commits have none, see -before.
				if classes := reflect.ValueOf(&cfg).Elem().FieldByName(
					"Classes"); classes.IsValid() {
					classes.Set(reflect.ValueOf([]string{"bench*"}))
				}
				if cfg.Observer, err = tracing.NewObserver(
					tracing.Config{Tracer: tracer}); err != nil {
					return nil, err
				}
			}
			l, err := locker.New(b, locker.Bare, cfg)
			if err != nil {
				return nil, err
			}
			return lockFunc(func(ctx context.Context, key string) (Held, error) {
				if keys := several(name, key); keys != nil {
					g, err := locker.All(ctx, l, keys, opts...)
					if err != nil {
						return nil, err
					}
					return &held{0, g.Unlock}, nil
				}
				g, err := l.Lock(ctx, key, opts...)
				if err != nil {
					return nil, err
				}
				return guard{g}, nil
			}), nil
		},
	}
}

// address is the URL of one server, or of several that commas part.
func address(scheme, addr string) string {
	node, quorum := strings.CutPrefix(scheme, "redlock://")
	if !quorum {
		return scheme + addr
	}
	nodes := url.Values{}
	for a := range strings.SplitSeq(addr, ",") {
		nodes.Add("node", node+a)
	}
	return "redlock://?" + nodes.Encode()
}

type guard struct{ g *locker.Guard[struct{}] }

func (g guard) Token() uint64 { return g.g.Hold().Token }
func (g guard) Unlock() error { return g.g.Unlock() }

// dropped is an exporter that drops spans: what is measured is holdfast and the SDK.
type dropped struct{}

func (dropped) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (dropped) Shutdown(context.Context) error                             { return nil }
