package redissim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/smallredis"
)

// TestDamage has the scripts meet what a simulation has no time for: locks that are damaged, other
// programs' data, hundreds of holders and of those who wait, replicas and full servers, rules that
// differ. Whatever there is, each answers what it may, and none fails by an error of its own.
func TestDamage(t *testing.T) {
	n := 300
	if testing.Short() || raceEnabled {
		n = 20
	}
	damage(t, n, nil)
}

func damage(t *testing.T, n int, cover *smallredis.Cover) {
	t.Helper()
	each(t, n, func(t *testing.T, seed uint64) bool {
		d := newDamaged(t, seed, cover)
		d.run()
		return !t.Failed()
	})
}

// A damaged is a run of random scripts on one server.
type damaged struct {
	t    *testing.T
	r    *rand.Rand
	on   *smallredis.Server
	time time.Time
	l    script.Layout
	key  string
	log  []string
}

func newDamaged(t *testing.T, seed uint64, cover *smallredis.Cover) *damaged {
	d := &damaged{t: t, r: rand.New(rand.NewPCG(seed, 25)), time: time.Unix(1_800_000_000, 0)}
	d.on = smallredis.New(func() time.Time { return d.time }, strings.Repeat("a", 40))
	d.on.Cover = cover
	var err error
	if d.l, err = script.NewLayout("", time.Hour, time.Minute); err != nil {
		t.Fatal(err)
	}
	switch d.r.IntN(4) {
	case 0:
		d.l = d.l.Guarded(2*time.Hour, 0)
	case 1:
		if d.l, err = script.Dialect("", time.Hour, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	d.l = d.l.For("client")
	d.key = d.l.Key("k")
	return d
}

func (d *damaged) dialect() bool { return d.l.Rule() == "none" && d.key == "k" }

func (d *damaged) run() {
	d.on.IFEQ = true
	few := d.r.IntN(3) > 0
	claims := d.claims(6)
	if !few && !d.dialect() {
		claims = append(claims, d.crowd()...)
	}
	guarded := d.l
	for range 60 {
		d.time = d.time.Add(time.Duration(
			d.r.Int64N(int64([]time.Duration{
				time.Millisecond, time.Second,
				40 * time.Minute,
			}[d.r.IntN(3)]))))
		c := claims[d.r.IntN(len(claims))]
		c.NoneInFlight = d.r.IntN(3) == 0
		if d.l = guarded; guarded.Rule() != "none" && d.r.IntN(8) == 0 {
			d.l = guarded.Guarded(3*time.Hour, 0) // a client with another rule
		}
		d.on.Full, d.on.Replica = d.r.IntN(8) == 0, d.r.IntN(12) == 0
		switch verb := d.r.IntN(16); {
		case verb < 6:
			d.acquire(c)
		case verb < 8:
			d.release(c)
		case verb == 8:
			d.renew(c)
		case verb == 9 && !d.dialect():
			d.eval("HEARTBEAT", d.l.Heartbeat([]backend.Claim{c}))
			other := claims[0]
			other.Key = "other"
			d.eval("HEARTBEAT", d.l.Heartbeat([]backend.Claim{c}, []backend.Claim{other}))
		case verb == 10 && !d.dialect() && d.r.IntN(2) == 0:
			other := claims[d.r.IntN(len(claims))]
			d.eval("RELEASEALL", d.l.ReleaseAll([]backend.Claim{c, other}))
		case verb == 10:
			d.eval("INSPECT", d.l.Inspect("k"))
		case verb == 11:
			d.eval("FENCED", d.l.Fenced("k", uint64(1+d.r.IntN(9)),
				"return redis.call('GET', KEYS[1])", []string{"data"}, nil))
		case verb == 12:
			d.on.Full, d.on.Replica = false, false
			_, _ = d.on.Do("DEL", d.key, "{k}:holdfast")
		default:
			key := []string{
				d.key, d.key, d.key, d.key + ":state", "{k}:holdfast", d.l.MarkKey(),
				d.l.FencedKeys("k")[1],
			}[d.r.IntN(7)]
			d.on.Full, d.on.Replica = false, false
			command := d.on.Damage(d.r, key)
			d.log = append(d.log, strings.Join(command, " "))
			_, _ = d.on.Do(command...)
		}
		if d.t.Failed() {
			return
		}
	}
}

func (d *damaged) acquire(c backend.Claim) {
	l := d.l
	if d.r.IntN(4) == 0 && !c.Queue {
		l = l.Watched()
	}
	d.eval("ACQUIRE", l.Acquire(c))
}

func (d *damaged) release(c backend.Claim) {
	if c.Load && d.r.IntN(2) == 0 {
		c.Save = []byte("saved")
	}
	c.Before = append(c.Before, backend.Past{})[:d.r.IntN(2)]
	d.eval("RELEASE", d.l.Release(c))
}

func (d *damaged) renew(c backend.Claim) {
	if c.MinToken = 0; d.r.IntN(2) == 0 {
		c.MinToken = uint64(d.time.UnixMicro()) + uint64(d.r.Int64N(1e10))
	}
	if c.Load && d.r.IntN(2) == 0 {
		c.Save = []byte("saved")
	}
	d.eval("RENEW", d.l.Renew(c))
}

// claims are of few owners in few modes, so that they meet.
func (d *damaged) claims(n int) (all []backend.Claim) {
	modes := d.r.Perm(6)[:1+d.r.IntN(2)]
	for i := range n {
		c := backend.Claim{
			Key: "k", Owner: fmt.Sprint("owner", i), TTL: time.Hour,
			Meta: backend.Meta{Service: "s"},
		}
		if d.dialect() {
			all = append(all, c)
			continue
		}
		switch modes[d.r.IntN(len(modes))] {
		case 1:
			c.Mode = backend.Shared
		case 2:
			c.Mode, c.Limit, c.Weight = backend.Permit, 3+d.r.IntN(2), 1+d.r.IntN(2)
		case 3:
			c.Reentrant, c.Hold, c.Owner = true, fmt.Sprint("hold", i), fmt.Sprint("owner", i%2)
		case 4:
			c.Load = true
		case 5:
			c.NotBefore = time.Hour
		}
		if d.r.IntN(2) == 0 && c.NotBefore == 0 {
			c.Queue, c.WaiterTTL = true, time.Duration(1+d.r.IntN(3))*time.Hour
		}
		if c.Mode == backend.Exclusive && !c.Reentrant {
			c.Reserve = d.r.IntN(5)
		}
		if d.r.IntN(3) == 0 {
			c.MinToken = uint64(d.time.UnixMicro())
		}
		all = append(all, c)
	}
	return all
}

// crowd has hundreds hold, or wait, some of whom are over soon.
func (d *damaged) crowd() (all []backend.Claim) {
	first := backend.Claim{Key: "k", Owner: "first", TTL: time.Hour}
	if d.r.IntN(2) == 0 {
		d.acquire(first)
	}
	mode := []backend.Mode{
		backend.Shared, backend.Shared, backend.Permit,
		backend.Exclusive,
	}[d.r.IntN(4)]
	for i := range 140 + d.r.IntN(160) {
		c := backend.Claim{
			Key: "k", Owner: fmt.Sprint("crowd", i), Mode: mode,
			TTL: time.Minute + time.Duration(d.r.Int64N(int64(time.Hour))),
		}
		if mode == backend.Permit {
			c.Limit, c.Weight = 200, 1
		}
		c.Queue, c.WaiterTTL = true, c.TTL
		d.acquire(c)
		if d.r.IntN(8) == 0 {
			d.release(c)
		}
		all = append(all, c)
	}
	d.release(first)
	return append(all, first)
}

// eval runs a script. It may refuse, and the server may; an error of the script is a defect.
func (d *damaged) eval(verb string, r script.Request) {
	reply, err := d.on.Eval(r.Script.Source(), r.Keys, r.Args)
	d.log = append(d.log, fmt.Sprint(verb, " ", strings.Join(r.Args, " "), " = ", reply, " ", err))
	if err == nil {
		return
	}
	for _, code := range []string{"OOM ", "READONLY ", "WRONGTYPE "} {
		if strings.HasPrefix(err.Error(), code) {
			return
		}
	}
	d.t.Errorf("%s fails by itself: %v\n%s", verb, err,
		strings.Join(d.log[max(0, len(d.log)-30):], "\n"))
}
