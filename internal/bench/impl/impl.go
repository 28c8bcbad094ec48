// Package impl has what is measured: holdfast on each of its backends, other lock libraries, and the bare clients that
// nobody who asks the server twice for a lock can beat. One file each; a new one registers itself with [register] and is
// in every scenario that its Skip does not name.
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
	Limit Role = "limit" // a client without a library around it: no waiting, no renewal, no fencing
)

// An Impl is one way to lock. Its settings are those of its README unless Settings says otherwise.
type Impl struct {
	Name     string
	Role     Role
	Settings string
	Modules  []string // whose versions are told
	Fenced   bool     // gives tokens, which are checked
	Sent     []string // the commands that it sends itself; all others run inside of its scripts
	Skip     []string // scenarios that it has no part in
	Extra    bool     // only in a full run

	Open func(ctx context.Context, addr string) (Client, error)
}

// A Client is an implementation at work, as one process would have it.
type Client interface {
	// Lock waits until key is held. An error while ctx lasts means that the library gave up; it is asked again, and the
	// wait goes on.
	Lock(ctx context.Context, key string) (Held, error)
	Close() error
}

// Held is a lock that is held.
type Held interface {
	Token() uint64 // 0 without fencing
	Unlock() error
}

// In says whether the implementation takes part in a scenario.
func (i Impl) In(scenario string) bool { return !slices.Contains(i.Skip, scenario) }

var all []Impl

func register(i Impl) Impl {
	all = append(all, i)
	return i
}

// All returns the implementations: limits, then ours, then peers.
func All() []Impl {
	order := map[Role]int{Limit: 0, Ours: 1, Peer: 2}
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

// Versions tells the versions of an implementation's modules in this program.
func (i Impl) Versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var found []string
	for _, want := range i.Modules {
		for _, dep := range info.Deps {
			if dep.Path == want {
				found = append(found, strings.TrimPrefix(want, "github.com/")+" "+dep.Version)
			}
		}
	}
	return strings.Join(found, ", ")
}
