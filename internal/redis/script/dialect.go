package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Dialect returns the layout that other libraries have (redsync, bsm/redislock, node-redlock,
// redis-py, the Redlock text): the key is prefix and key as they are, and holds the owner for as
// long as the lease lasts. prefix may be empty. Plain exclusive claims only.
func Dialect(prefix string, retention, inFlight time.Duration) (Layout, error) {
	if strings.ContainsFunc(prefix, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return Layout{}, &backend.InvalidError{
			Field: "prefix", Value: prefix,
			Reason: "has control characters",
		}
	}
	l, err := NewLayout("dialect:", retention, inFlight)
	if err == nil && len(prefix) > backend.MaxKey {
		_, err = NewLayout(prefix, retention, inFlight) // says that it is too long
	}
	l.prefix = prefix
	return Layout{l.names, &dialect{l.names}}, err
}

// dialect is the layout of other libraries. One script has all verbs, and is told which by its
// first argument.
type dialect struct{ names }

func (l Layout) isDialect() bool {
	_, is := l.kind.(*dialect)
	return is
}

func (*dialect) named(n names) kind { return &dialect{n} }

func (d *dialect) Key(key string) string { return d.prefix + key }

func (d *dialect) Acquire(c backend.Claim) Request {
	id, keep, ahead := inName.escape(c.ID()), d.Keep(c),
		strconv.FormatInt(roundUp(c.TTL).Microseconds()/4, 10)
	tail := tailOf(millis(keep), id, max(c.Reserve, 1), &c.Meta)
	return d.request(c.Key, "acquire", id, millis(c.TTL+keep+time.Millisecond), tail,
		strconv.FormatUint(c.MinToken, 10), ahead)
}

func (d *dialect) Renew(c backend.Claim) Request {
	return d.request(c.Key, "renew", inName.escape(c.ID()), millis(c.TTL), millis(d.Keep(c)),
		strconv.FormatUint(c.MinToken, 10))
}

func (d *dialect) Release(c backend.Claim) Request {
	return d.request(c.Key, "release", inName.escape(c.ID()), millis(d.Keep(c)), d.tombstone(c))
}

func (*dialect) TryAcquireAll([]backend.Claim) Request { return Request{} }

func (*dialect) TryReleaseAll([]backend.Claim) Request { return Request{} }

func (*dialect) ReleaseAll([]backend.Claim) Request { return Request{} }

func (*dialect) Heartbeat(...[]backend.Claim) Request { return Request{} }

func (d *dialect) Inspect(locks ...string) Request { return d.request(locks[0], "inspect") }

func (d *dialect) request(key string, args ...string) Request {
	k := d.Key(key)
	return Request{stringDialect, []string{k, sideKey(k)}, args}
}

// sideKey is beside a lock of the dialect whose key is k, in its slot: a key's hash tag is what is
// between its first brace and the next closing one, if that is not nothing, and else the whole key.
// Two locks never have the same one, as those of tagged keys end otherwise.
func sideKey(k string) string {
	if tagged(k) {
		return k + ":tagged" + sideSuffix
	}
	return "{" + k + "}" + sideSuffix
}

const sideSuffix = ":holdfast" // no lock's key ends so: see CheckKey

func tagged(k string) bool {
	_, after, ok := strings.Cut(k, "{")
	return ok && strings.Index(after, "}") > 0
}

// CheckKey refuses a key that cannot be locked, with a *[backend.InvalidError]. In the string
// dialect that is one that ends as side keys do: it could be that of another lock, and whoever
// holds it would keep everyone from that lock. In a cluster it is also one with a closing brace
// that ends no hash tag, as no second key can be in its slot.
func (l Layout) CheckKey(key string, cluster bool) error {
	if !l.isDialect() {
		return nil
	}
	switch k := l.Key(key); {
	case strings.HasSuffix(k, sideSuffix):
		return &backend.InvalidError{Field: "key", Value: key, Reason: "ends in " + sideSuffix +
			", which the string dialect keeps for what it stores beside a lock"}
	case cluster && strings.Contains(k, "}") && !tagged(k):
		return &backend.InvalidError{
			Field: "key", Value: key,
			Reason: "has a closing brace that ends no {hash tag}, " +
				"which the string dialect cannot have in a cluster",
		}
	}
	return nil
}
