//go:build linux

package chaos

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

var (
	long = flag.Duration("long", 0,
		"run all scenarios again and again for so long; 0 is each of the short form once")
	seed = flag.Uint64("seed", 0,
		"of the first run, and of the faults of each scenario in it; 0 draws one")
	only = flag.Bool("only", false, "run only what -run names, long or not")
	page = flag.String("page", "", "the file whose table is written again")
)

func TestMain(m *testing.M) {
	code := 0
	goleak.VerifyTestMain(runner(func() int {
		code = m.Run()
		if shim.dir != "" {
			_ = os.RemoveAll(shim.dir)
		}
		return code
	}))
}

type runner func() int

func (r runner) Run() int { return r() }

// asked says whether this is make chaos, which passes -seed; a bare go test has no need of it.
func asked() bool { return *seed != 0 }

// TestChaos runs the scenarios.
//
// covers: B11, G6, K1
func TestChaos(t *testing.T) {
	if !asked() {
		testserver.OnlyInAll(t, "make chaos does more")
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1<<40) + 1
	}
	results := &results{rows: map[string]*row{}}
	began := time.Now()
	for round := uint64(0); round == 0 || time.Since(began) < *long; round++ {
		t.Logf("seed %d", *seed+round)
		t.Run(fmt.Sprint(*seed+round), func(t *testing.T) {
			for _, sc := range scenarios {
				if sc.long && *long == 0 && !*only || !asked() && sc.name != "redis-net" {
					continue
				}
				t.Run(sc.name, func(t *testing.T) {
					t.Parallel()
					results.add(run(t, sc, *seed+round))
				})
			}
		})
	}
	t.Logf("in %v:\n%s", time.Since(began).Round(time.Second), results.table())
	if *page != "" {
		if err := results.write(*page, time.Since(began)); err != nil {
			t.Error(err)
		}
	}
}

// run performs a scenario, and fails the test for what is wrong, with its histories.
func run(t *testing.T, sc scenario, seed uint64) *stage {
	t.Helper()
	length := sc.length
	if length == 0 {
		length = 10 * time.Second
	}
	if !asked() {
		length = 3 * time.Second
	}
	repeat := fmt.Sprintf("make chaos SCENARIO=%s SEED=%d", sc.name, seed)
	judged := false
	defer func() {
		if !judged {
			t.Logf("repeat with\n\t%s", repeat)
		}
	}()
	s := perform(t, sc, mix(seed, sc.name), length, "")
	judged = true
	if len(s.found) == 0 {
		s.must(os.RemoveAll(s.dir))
		return s
	}
	t.Errorf("%s: %d holds under %v; histories and the plan in %s; repeat with\n\t%s\n%s",
		sc, s.holds, s.passed, s.dir, repeat, strings.Join(s.found, "\n"))
	return s
}

// mix makes of a run's seed one for each scenario.
func mix(seed uint64, name string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return seed ^ uint64(h.Sum32())
}

// serverPaths are of programs that .ci/redis-versions unpacks.
var serverPaths sync.Map

func serverPath(name string) (string, error) {
	if path, ok := serverPaths.Load(name); ok {
		return path.(string), nil //nolint:forcetypeassert // stored below
	}
	out, err := exec.Command("../../../.ci/redis-versions",
		strings.ReplaceAll(name, " ", "")).Output()
	if err != nil {
		return "", err
	}
	path := strings.TrimSpace(string(out))
	serverPaths.Store(name, path)
	return path, nil
}
