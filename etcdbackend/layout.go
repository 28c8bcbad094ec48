package etcdbackend

import (
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// Layout says what the keys of a lock look like in etcd.
type Layout string

const (
	// Native has all modes. Names may contain anything, and one name never waits for another.
	Native Layout = "native"

	// Etcdctl excludes `etcdctl lock NAME` and concurrency.Mutex on the same name, both ways. It
	// has exclusive claims only, and what these peers have: a lock named jobs also waits for
	// whoever holds jobs/1.
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
	sideRoot      = "holdfast-side/" // what Etcdctl keeps outside of the lock's own range
)

// A scheme makes and reads keys.
//
//	Native:  <prefix><name>/q/x/<slot>        an entry of the queue: a claim that holds or waits
//	                          s/<slot>
//	                          p/<limit>/<slot>
//	                          p/<limit>/<weight>/<slot>   one that counts more than once
//	                          r/<owner>/<slot>
//	         <prefix><name>/q/token           the counter of tokens, if one was ever raised
//	         <prefix><name>/q/g/…             the shadow of an entry, named like it
//	         <prefix><name>/t/<id>            a tombstone
//	         <prefix><name>/state             what a holder saved; it has no lease
//	         <prefix><name>/ran               the last run of a job; see run
//	         <prefix><name>/early             the same for earlier versions, as long as its lease
//	         <prefix>identity                 see Backend.Identity
//	Etcdctl: <prefix><name>/holdfast-<slot>   with the name as it is
//	         holdfast-side/<prefix><name>/t/<id>
//	         holdfast-side/<prefix><name>/g/…
//	         holdfast-side/identity
//
// A slot is a name that a client uses again once the entry is certainly gone and no request is in
// flight that may create it: etcd scans deleted keys in every range read until it is compacted, so
// with a fresh key for each claim a busy lock would get slower from one acquisition to the next.
// Whose entry it is, its value says.
//
// The weight is in the key and not in the value, so that a client that knows no weights refuses the
// entry, and with it the queue, as not ours. It would count the entry once.
//
// Name, id and owner are escaped so that they have no slash, except for the name in Etcdctl. So no
// lock's keys are within another's range, and the identity is in none.
type scheme struct {
	prefix  string
	etcdctl bool
}

// paths are where the keys of one lock are.
type paths struct {
	scheme
	queue string // prefix of all entries
	side  string // prefix of all else
}

func (s scheme) paths(key string) paths {
	if s.etcdctl {
		return paths{s, s.prefix + key + "/", sideRoot + escape(s.prefix+key) + "/"}
	}
	root := s.prefix + escape(key) + "/"
	return paths{s, root + "q/", root}
}

func (s scheme) identity() string {
	if s.etcdctl {
		return sideRoot + "identity"
	}
	return s.prefix + "identity"
}

// check refuses a key that would be kept among our own side keys.
func (s scheme) check(key string) error {
	if s.etcdctl && strings.HasPrefix(s.prefix+key+"/", sideRoot) {
		return invalid("key", key, "is a name that the layout keeps for itself")
	}
	return nil
}

func (p paths) end() string { return clientv3.GetPrefixRangeEnd(p.queue) }

// reads are the operations that read the queue. They are the last of a transaction, see lastRead.
func (p paths) reads() []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpGet(p.queue, clientv3.WithRange(p.end()))}
	if p.etcdctl {
		ops = append(ops, clientv3.OpGet(p.shadows(), clientv3.WithPrefix()))
	}
	return ops
}

// lastRead is the queue that the last operations of a transaction have read.
func (p paths) lastRead(reply *clientv3.TxnResponse) []*mvccpb.KeyValue {
	n := 1
	if p.etcdctl {
		n = 2
	}
	return ranges(reply.Responses[len(reply.Responses)-n:])
}

// topic names a claim: in the table of local claims, and in the hub.
func (p paths) topic(id string) string { return p.queue + "\xff" + id }

// entry is the key of an entry of c's mode, when it does not enter again what its owner holds.
func (p paths) entry(c backend.Claim, slot string) string {
	switch {
	case p.etcdctl:
		return p.queue + "holdfast-" + slot
	case c.Mode == backend.Shared:
		return p.queue + "s/" + slot
	case c.Mode == backend.Permit:
		if c.Weight > 1 {
			return p.limit(c) + strconv.Itoa(c.Weight) + "/" + slot
		}
		return p.limit(c) + slot
	}
	return p.queue + "x/" + slot
}

// limit is the prefix of permits of c's limit.
func (p paths) limit(c backend.Claim) string { return p.queue + "p/" + strconv.Itoa(c.Limit) + "/" }

// reentry is the key of an entry of c when it enters again.
func (p paths) reentry(c backend.Claim, slot string) string {
	return p.queue + "r/" + escape(c.Owner) + "/" + slot
}

func (p paths) tombstone(c backend.Claim) string { return p.side + "t/" + escape(c.ID()) }

// counter is the key of the lock's counter, see [counter]. It is among the entries, so that it is
// read with them and a claim that knows nothing of it finds the queue not empty.
func (p paths) counter() string { return p.queue + "token" }

// state is the key of the lock's stored state, in [Native] alone.
func (p paths) state() string { return p.side + "state" }

// ran and early are the keys of the marks that a job's release leaves, see [run].
func (p paths) ran() string   { return p.side + "ran" }
func (p paths) early() string { return p.side + "early" }

// A kind is what the key of an entry says: its class, and of a permit the limit and the weight.
type kind struct {
	class         byte
	limit, weight int
}

// kind reads what kind of entry a key is. It reports false for a key that is not ours.
func (p paths) kind(key string) (k kind, ok bool) {
	if p.etcdctl {
		return kind{class: exclusive}, true
	}
	parts := strings.Split(strings.TrimPrefix(key, p.queue), "/")
	switch {
	case len(parts) == 2 && (parts[0] == "x" || parts[0] == "s"):
		return kind{class: parts[0][0]}, true
	case len(parts) == 3 && parts[0] == "r":
		return kind{class: reentry}, true
	case len(parts) == 3 && parts[0] == "p":
		n, err := strconv.Atoi(parts[1])
		return kind{permit, n, 1}, err == nil && n > 0
	case len(parts) == 4 && parts[0] == "p":
		n, err := strconv.Atoi(parts[1])
		weight, err2 := strconv.Atoi(parts[2])
		return kind{permit, n, weight}, err == nil && err2 == nil && weight > 1 && weight <= n
	}
	return kind{}, false
}

// escape is injective and its results have no slash.
func escape(s string) string { return escaper.Replace(s) }

var escaper = strings.NewReplacer("%", "%25", "/", "%2F")

// The compares of transactions. A key that is not there has the create revision 0.

// unchanged compares that nothing was created in the queue since a revision; since 0, that it is
// empty.
func (p paths) unchanged(since int64) []clientv3.Cmp {
	compares := []clientv3.Cmp{createdBefore(p.queue, p.end(), since+1)}
	if p.etcdctl {
		compares = append(compares,
			createdBefore(p.shadows(), clientv3.GetPrefixRangeEnd(p.shadows()), since+1))
	}
	return compares
}

// unused compares that there is no such entry, and no shadow of an earlier one of the name, which
// it would hide: also a request that was sent twice may come late.
func (p paths) unused(entry string) []clientv3.Cmp {
	return []clientv3.Cmp{absent(entry), absent(p.shadow(entry))} // safeguard: etcd-unused
}

// absent compares that there is no such key.
func absent(key string) clientv3.Cmp { return createdBefore(key, "", 1) }

// createdBefore compares that all keys from key up to end were created before a revision; before 1
// is none at all.
func createdBefore(key, end string, revision int64) clientv3.Cmp {
	c, p := compare(key, pb.Compare_CREATE, pb.Compare_LESS)
	if p.TargetUnion = (&pb.Compare_CreateRevision{CreateRevision: revision}); end != "" {
		p.RangeEnd = []byte(end)
	}
	return c
}

// same compares that an entry was not deleted since it was seen, and that nobody wrote to one that
// is an orphan.
func same(e *entry) clientv3.Cmp {
	if e.shadowed != "" {
		return unwritten(e.key, e.modified)
	}
	c, p := compare(e.key, pb.Compare_CREATE, pb.Compare_EQUAL)
	p.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: e.created}
	return c
}

// unwritten compares that nobody wrote to a key since a revision at which it was written; since 0,
// that there is no such key.
func unwritten(key string, revision int64) clientv3.Cmp {
	c, p := compare(key, pb.Compare_MOD, pb.Compare_EQUAL)
	p.TargetUnion = &pb.Compare_ModRevision{ModRevision: revision}
	return c
}

// compare is made in place: the client's own functions copy a compare, by reflection, in each
// step.
func compare(
	key string, target pb.Compare_CompareTarget, result pb.Compare_CompareResult,
) (c clientv3.Cmp, p *pb.Compare) {
	p = c.GetCompare()
	p.Key, p.Target, p.Result = []byte(key), target, result
	return c, p
}
