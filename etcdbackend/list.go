package etcdbackend

import (
	"context"
	"iter"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// listPage is how many keys one request of List reads.
var listPage int64 = 1000 // a variable for tests

// List finds locks by reading the names of their entries, a page at a time, and then each lock, as
// [backend.Backend] says. In [Etcdctl] it lists whatever has the shape of a lock: NAME/something
// with a lease.
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
				reply, err := b.get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(listPage))
				if err != nil {
					return err
				}
				for _, kv := range reply.Kvs {
					if name, ok := b.scheme.name(string(kv.Key)); ok && name != last && kv.Lease != 0 {
						last = name
						names = append(names, name)
					}
				}
				if reply.More {
					next = string(reply.Kvs[len(reply.Kvs)-1].Key) + "\x00"
				}
				return nil
			})
			for _, name := range names {
				if err != nil {
					break
				}
				var l backend.Listed
				if l.Key = name; l.Key != "" {
					l.State, err = b.Inspect(ctx, name)
				}
				if err == nil && (l.State.Holders != nil || l.State.Waiters != nil) && !yield(l, nil) {
					return
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

// ForceRelease ends a hold whoever's it is, as [backend.Backend] says. In [Etcdctl] the hold of a
// peer is an error that is [errors.ErrUnsupported]: it would not learn of it.
func (b *Backend) ForceRelease(ctx context.Context, key string, token uint64) (backend.Holder, error) {
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
