package etcdbackend

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// listPage is how many keys one request of List reads.
const listPage = 1000

// List finds locks by reading the names of their entries, a page at a time, and then the locks,
// several in one request, as [backend.Backend] says. In [Etcdctl] it lists whatever has the shape
// of a lock: NAME/something with a lease.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		root := b.scheme.prefix + escape(prefix)
		if b.scheme.etcdctl {
			root = b.scheme.prefix + prefix
		}
		end := clientv3.GetPrefixRangeEnd(root)
		if root == "" {
			root, end = "\x00", "\x00" // all keys
		}
		last := ""
		for from := root; from != ""; {
			var names []string
			var next string
			err := b.verb(ctx, prefix, func(ctx context.Context) error {
				reply, err := b.get(ctx, from, clientv3.WithRange(end),
					clientv3.WithLimit(listPage))
				if err != nil {
					return err
				}
				for _, kv := range reply.Kvs {
					if name, ok := b.scheme.name(string(kv.Key)); ok && name != "" &&
						name != last && kv.Lease != 0 {
						last = name
						names = append(names, name)
					}
				}
				if reply.More {
					next = string(reply.Kvs[len(reply.Kvs)-1].Key) + "\x00"
				}
				return nil
			})
			for some := range slices.Chunk(names, b.scheme.maxReads()) {
				var states []backend.State
				if err == nil {
					err = b.verb(ctx, prefix, func(ctx context.Context) error {
						states, err = b.states(ctx, some)
						return err
					})
				}
				for i, state := range states {
					if (state.Holders != nil || state.Waiters != nil) &&
						!yield(backend.Listed{Key: some[i], State: state}, nil) {
						return
					}
				}
			}
			if err != nil {
				yield(backend.Listed{}, err)
				return
			}
			from = next
		}
	}
}

// states shows the locks of so many names.
func (b *Backend) states(ctx context.Context, names []string) ([]backend.State, error) {
	queues, err := b.readQueues(ctx, names)
	if err != nil {
		return nil, err
	}
	states, remaining := make([]backend.State, len(queues)), map[int64]time.Duration{}
	for i, q := range queues {
		if err := q.err; err != nil {
			return states[:i], fmt.Errorf("lock %q: %w", names[i], err)
		}
		if states[i], err = b.state(ctx, q.queue, remaining); err != nil {
			return states[:i], err
		}
	}
	return states, nil
}

// ForceRelease ends a hold whoever holds it, as [backend.Backend] says. In [Etcdctl] the hold of a
// peer is an error that is [errors.ErrUnsupported]: it would not learn of it.
func (b *Backend) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	return backend.ForceReleaseBy(ctx, b, key, token)
}

// name returns the name of the lock that a key in its queue belongs to.
func (s scheme) name(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix)
	if !ok {
		return "", false
	}
	if s.etcdctl {
		i := strings.LastIndexByte(rest, '/')
		return rest[:max(i, 0)], i > 0 && !strings.HasPrefix(key, sideRoot)
	}
	name, rest, ok = strings.Cut(rest, "/")
	return unescaper.Replace(name), ok && strings.HasPrefix(rest, "q/") && rest != "q/token"
}

var unescaper = strings.NewReplacer("%25", "%", "%2F", "/")
