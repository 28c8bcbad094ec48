package etcdbackend

import (
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// Layout says what the keys of a lock look like in etcd.
type Layout string

const (
	// Native has all modes. Names may contain anything, and one name never waits for another.
	Native Layout = "native"

	// Etcdctl excludes `etcdctl lock NAME` and concurrency.Mutex on the same name, both ways. It has exclusive claims only,
	// and what these peers have: a lock named jobs also waits for whoever holds jobs/1.
	Etcdctl Layout = "etcdctl"
)

// The classes of entries. In [Etcdctl] all are exclusive.
const (
	exclusive = 'x'
	shared    = 's'
	permit    = 'p'
	reentry   = 'r' // a further hold of a re-entrant owner
)

const (
	defaultPrefix = "holdfast/"
	sideRoot      = "holdfast-side/" // what Etcdctl keeps beside the lock's own range
)

// A scheme makes and reads keys.
//
//	Native:  <prefix><name>/q/x/<slot>        an entry: who holds or stands in line
//	                          s/<slot>
//	                          p/<limit>/<slot>
//	                          r/<owner>/<slot>
//	         <prefix><name>/t/<id>            a tombstone
//	         <prefix><name>/state             what a holder saved; it has no lease
//	Etcdctl: <prefix><name>/holdfast-<slot>   with the name as it is
//	         holdfast-side/<prefix><name>/t/<id>
//
// A slot is a name of a client's that it uses again when it is certain that the entry is gone and no attempt is under way. A
// key that was deleted is scanned by every range read until etcd is compacted, so a fresh key for each claim would make a busy
// lock slower from one acquisition to the next. Whose entry it is, its value says.
//
// Name, id and owner are escaped so that they have no slash, except for the name in Etcdctl. So no lock's keys are within
// another's range.
type scheme struct {
	prefix  string
	etcdctl bool
}

// A place is where the keys of one lock are.
type place struct {
	scheme
	line string // prefix of all entries
	side string // prefix of all else
}

func (s scheme) at(key string) place {
	if s.etcdctl {
		return place{s, s.prefix + key + "/", sideRoot + escape(s.prefix+key) + "/"}
	}
	root := s.prefix + escape(key) + "/"
	return place{s, root + "q/", root}
}

// check refuses a key that would be kept among our own side keys.
func (s scheme) check(key string) error {
	if s.etcdctl && strings.HasPrefix(s.prefix+key+"/", sideRoot) {
		return &backend.InvalidError{Field: "key", Value: key, Reason: "is a name that the layout keeps for itself"}
	}
	return nil
}

func (p place) end() string { return clientv3.GetPrefixRangeEnd(p.line) }

// entry is the key of an entry of c's mode, when it does not enter again what its owner holds.
func (p place) entry(c backend.Claim, slot string) string {
	switch {
	case p.etcdctl:
		return p.line + "holdfast-" + slot
	case c.Mode == backend.Shared:
		return p.line + "s/" + slot
	case c.Mode == backend.Permit:
		return p.limit(c) + slot
	}
	return p.line + "x/" + slot
}

// limit is the prefix of permits of c's limit.
func (p place) limit(c backend.Claim) string { return p.line + "p/" + strconv.Itoa(c.Limit) + "/" }

// reentry is the key of an entry of c when it does.
func (p place) reentry(c backend.Claim, slot string) string {
	return p.line + "r/" + escape(c.Owner) + "/" + slot
}

func (p place) tombstone(c backend.Claim) string { return p.side + "t/" + escape(c.ID()) }

// state is the key of the lock's stored state, in [Native] alone.
func (p place) state() string { return p.side + "state" }

// class reads what kind of entry a key is, and its limit. It reports false for a key that is not ours.
func (p place) class(key string) (class byte, limit int, ok bool) {
	if p.etcdctl {
		return exclusive, 0, true
	}
	parts := strings.Split(strings.TrimPrefix(key, p.line), "/")
	switch {
	case len(parts) == 2 && (parts[0] == "x" || parts[0] == "s"):
		return parts[0][0], 0, true
	case len(parts) == 3 && parts[0] == "r":
		return reentry, 0, true
	case len(parts) == 3 && parts[0] == "p":
		n, err := strconv.Atoi(parts[1])
		return permit, n, err == nil && n > 0
	}
	return 0, 0, false
}

// classOf is class for a key that is ours.
func (p place) classOf(key string) byte {
	class, _, _ := p.class(key)
	return class
}

// escape is injective and its results have no slash.
func escape(s string) string { return escaper.Replace(s) }

var escaper = strings.NewReplacer("%", "%25", "/", "%2F")
