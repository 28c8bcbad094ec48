// Package impl has what is measured: holdfast on each of its backends, other lock libraries, and
// what nobody beats who asks a server twice for a lock. Each is registered by the file it is in.
package impl

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// TTL is the lease of every implementation whose README does not say otherwise.
const TTL = 8 * time.Second

// Role is why an implementation is measured.
type Role string

// The roles.
const (
	Ours  Role = "ours"
	Peer  Role = "peer"
	Floor Role = "floor" // the least that such a lock, or a part of one, can cost
)

// The client libraries by which implementations talk to a server: ratios are made within one.
const (
	Goredis = "goredis"
	Rueidis = "rueidis"
	Etcd    = "etcd"
)

var modules = map[string]string{
	Goredis: "github.com/redis/go-redis/v9", Rueidis: "github.com/redis/rueidis",
	Etcd: "go.etcd.io/etcd/client/v3",
}

// An Impl is one way to lock. Its settings are those of its README unless Settings says otherwise.
type Impl struct {
	Name     string
	Role     Role
	Client   string // which client library; "" for none
	Settings string
	Module   string   // of a peer
	Sent     []string // the commands that it sends itself; all others run inside of its scripts

	// Open connects to addr; of a quorum, to the addresses that commas part.
	Open func(ctx context.Context, addr string) (Client, error)
}

// A Client is an implementation at work, as one process would have it. Its process ends with it,
// so nothing closes it.
type Client interface {
	// Lock waits until key is held. An error while ctx lasts means that the library gave up; it is
	// asked again, and the wait goes on.
	Lock(ctx context.Context, key string) (Held, error)
}

// Held is a lock that is held.
type Held interface {
	Token() uint64 // 0 without fencing
	Unlock() error
}

// A lockFunc is a Client.
type lockFunc func(ctx context.Context, key string) (Held, error)

func (f lockFunc) Lock(ctx context.Context, key string) (Held, error) { return f(ctx, key) }

// A held is a hold whose release is a function.
type held struct {
	token  uint64
	unlock func() error
}

func (h *held) Token() uint64 { return h.token }
func (h *held) Unlock() error { return h.unlock() }

var all []Impl

func register(impls ...Impl) { all = append(all, impls...) }

// All returns the implementations: floors, then ours, then peers.
func All() []Impl {
	order := map[Role]int{Floor: 0, Ours: 1, Peer: 2}
	s := slices.Clone(all)
	slices.SortStableFunc(s, func(a, b Impl) int {
		if d := order[a.Role] - order[b.Role]; d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return s
}

// Named returns the implementation of that name.
func Named(name string) (Impl, bool) {
	i := slices.IndexFunc(all, func(i Impl) bool { return i.Name == name })
	if i < 0 {
		return Impl{}, false
	}
	return all[i], true
}

// Versions tells the versions of the modules that an implementation uses.
func (i Impl) Versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var found []string
	for _, dep := range info.Deps {
		if dep.Path != "" && (dep.Path == i.Module || dep.Path == modules[i.Client]) {
			found = append(found, strings.TrimPrefix(dep.Path, "github.com/")+" "+dep.Version)
		}
	}
	return strings.Join(found, ", ")
}
