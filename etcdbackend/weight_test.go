package etcdbackend

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func heavy(key string, limit, weight int) backend.Claim {
	c := claim(key)
	c.Mode, c.Limit, c.Weight = backend.Permit, limit, weight
	return c
}

// A weight is in the key of the entry, where a client that knows none finds a key that is not ours.
// Entries without one have the keys that they always had.
//
// covers: Q12, R23
func TestWeightIsInTheKey(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b := on(t, c, Config{})
	for weight, want := range map[int]string{0: "p/3/", 1: "p/3/", 2: "p/3/2/", 3: "p/3/3/"} {
		claim := heavy(key(t), 3, weight)
		p := b.scheme.paths(claim.Key)
		acquired(t, b, claim)
		keys := entries(t, c, p.queue+"p/")
		if len(keys) != 1 || !strings.HasPrefix(keys[0], p.queue+want) ||
			strings.Contains(keys[0][len(p.queue+want):], "/") {
			t.Errorf("weight %d has the entries %q, want %s%s and a slot", weight, keys, p.queue,
				want)
		}
		if _, err := b.Release(t.Context(), claim); err != nil {
			t.Errorf("Release = %v", err)
		}
	}
}

// A key that no client of ours makes is no permit, of whatever weight.
func TestForeignWeights(t *testing.T) {
	p := scheme{prefix: defaultPrefix}.paths("k")
	for key, ok := range map[string]bool{
		"p/3/slot": true, "p/3/2/slot": true, "p/3/3/slot": true,
		"p/3/1/slot": false, "p/3/0/slot": false, "p/3/-2/slot": false, "p/3/4/slot": false,
		"p/3/x/slot": false,
		"p/x/2/slot": false, "p/0/2/slot": false, "p/3/2/1/slot": false, "s/3/2/slot": false,
		"x/3/2/slot": false,
	} {
		if k, got := p.kind(p.queue + key); got != ok || ok && (k.class != permit || k.limit != 3) {
			t.Errorf("%s is read as %+v, %v; want %v", key, k, got, ok)
		}
	}
}

// Who holds is a prefix of the queue whose weights are within the limit, and it only grows as
// entries before are deleted: whoever holds goes on holding, whichever entry goes.
//
// covers: Q12, W7
func TestWeightsOnlyMoveForward(t *testing.T) {
	const limit, entriesOfOne = 4, 5
	weights := make([]int, entriesOfOne)
	tried := 0
	var try func(n int)
	try = func(n int) {
		if n < entriesOfOne {
			for weights[n] = 1; weights[n] <= limit; weights[n]++ {
				try(n + 1)
			}
			return
		}
		tried++
		for gone := -1; gone < entriesOfOne; gone++ {
			before, q := &queue{}, &queue{}
			for i, w := range weights {
				of := func() *entry {
					return &entry{created: int64(i + 1), kind: kind{permit, limit, w}}
				}
				if before.entries = append(before.entries, of()); i != gone {
					q.entries = append(q.entries, of())
				}
			}
			before.settle()
			q.settle()
			sum, waits := 0, false
			for _, e := range q.entries {
				if waits = waits || !e.granted; waits && e.granted {
					t.Fatalf("weights %v without %d: %+v holds behind one that waits", weights,
						gone, e)
				}
				if e.granted {
					sum += e.weight
				} else if before.entries[e.created-1].granted {
					t.Fatalf("weights %v: %+v holds no more when %d is gone", weights, e, gone)
				}
			}
			if sum > limit {
				t.Fatalf("weights %v without %d: %d of %d are held", weights, gone, sum, limit)
			}
			if sum == 0 {
				t.Fatalf("weights %v without %d: nobody holds", weights, gone)
			}
		}
	}
	try(0)
	if tried != 1024 {
		t.Errorf("%d queues were tried", tried)
	}
}

// covers: Q12
func TestAdmitsByWeight(t *testing.T) {
	q := &queue{entries: []*entry{
		{created: 1, kind: kind{permit, 5, 2}},
		{created: 2, kind: kind{permit, 5, 1}},
	}}
	q.settle()
	for weight, want := range []bool{0: true, 1: true, 2: true, 3: false, 5: false} {
		if got := q.admits(heavy("k", 5, weight)); got != want {
			t.Errorf("beside 3 of 5 a claim of weight %d is admitted: %v, want %v", weight, got,
				want)
		}
	}
}
