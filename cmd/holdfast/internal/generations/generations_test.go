package generations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lease is long enough for a busy machine to renew in.
const lease = 6 * time.Second

// played plays scenarios on a server of their own.
func played(ctx context.Context, out io.Writer, asJSON bool, only ...scenario) error {
	return testserver.Hosted(func(t testing.TB) error {
		return staged(t).all(ctx, out, asJSON, only)
	})
}

func staged(t testing.TB) *stage {
	srv := testserver.Redis(t)
	return &stage{t: t, ttl: lease, server: &redis.Options{Addr: srv.Addr()}, url: srv.URL()}
}

// Each old way fails, holdfast holds, and the page shows what the command prints.
//
// covers: A1, A13, B3, B14, C1, C2, C3, C6, R1, R3
func TestStory(t *testing.T) {
	testserver.OnlyInAll(t, "the story")
	page, err := os.ReadFile("../../../../docs/generations.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	scenarios := parse(stories)
	if len(shown) != len(scenarios) {
		t.Fatalf("the page shows %d scenarios of %d", len(shown), len(scenarios))
	}
	// they wait for leases, so not only as many at once as there are processors
	var all sync.WaitGroup
	for i, sc := range scenarios {
		all.Go(func() {
			var out strings.Builder
			if err := played(t.Context(), &out, false, sc); err != nil {
				t.Errorf("%v:\n%s", err, out.String())
			}
			_, told, _ := strings.Cut(out.String(), "\n") // its title, where it is number 1
			if got, want := normal(told), normal(shown[i][1]); got != want {
				t.Errorf("the command prints\n%s\nand docs/generations.md shows\n%s", got, want)
			}
			if title := fmt.Sprintf("## %d. %s\n", i+1, sc.title); !strings.Contains(string(page),
				title) {
				t.Errorf("docs/generations.md has no heading %q", title)
			}
		})
	}
	all.Wait()
}

var (
	// The length of holdfast's leases, and a TTL that Redis has rounded.
	leases = regexp.MustCompile(`max_ttl is \S+`)
	ttls   = regexp.MustCompile(`(?m) (29|30)$`)
	blanks = regexp.MustCompile(`\s*\n\s*`)
)

func normal(text string) string {
	text = ttls.ReplaceAllString(leases.ReplaceAllString(text, "max_ttl is N"), " 30")
	return strings.TrimSpace(blanks.ReplaceAllString(text, "\n"))
}

// What comes otherwise than it is told is an error of the whole, on either side, and undone.
func TestUnexpected(t *testing.T) {
	for name, story := range map[string]string{
		// as if that could fail
		"an old way that does not fail": "A  SET key_resource_id lock_value → OK\nB  SETNX " +
			"key_resource_id lock_value → 1\nfails: x\nholds: y",
		"holdfast that does not hold": "fails: x\nA  TryLock key_resource_id → granted\nB  " +
			"TryLock key_resource_id → granted\nholds: y",
	} {
		sc := parse("a title\non: one server\n" + story)[0]
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := played(t.Context(), &out, false, sc); !errors.Is(err, ErrUnexpected) {
				t.Errorf("all = %v, want ErrUnexpected", err)
			}
			if n := strings.Count(out.String(), "UNEXPECTED: "); n != 1 {
				t.Errorf("%d sides are unexpected in\n%s", n, out.String())
			}
		})
	}
}

// Where the story says that holdfast fails, too, it does: A's lock and B's are held together.
func TestWithoutTheGuard(t *testing.T) {
	for _, sc := range parse(stories)[6:] {
		t.Run(sc.servers, func(t *testing.T) {
			t.Parallel()
			st := &stage{t: t, ttl: time.Minute, unguarded: true}
			side := st.play(t.Context(), sc.servers, sc.holdfast, func(string, ...any) {})
			if side.AsExpected || !strings.HasPrefix(side.Outcome,
				"B's TryLock resource_name: granted, and not ") {
				t.Errorf("%+v", side)
			}
		})
	}
}

// A key that is there already is somebody's, and stays as it is.
func TestSomebodysKey(t *testing.T) {
	srv := testserver.Redis(t)
	srv.MustDo("SET", resource, "a web shop's")
	st := &stage{t: t, ttl: lease, server: &redis.Options{Addr: srv.Addr()}, url: srv.URL()}
	sc := parse(stories)[0]
	side := st.play(t.Context(), sc.servers, sc.old, func(string, ...any) {})
	if side.AsExpected || !strings.Contains(side.Outcome, "there already") {
		t.Errorf("%+v", side)
	}
	if v := srv.MustDo("GET", resource); v != "a web shop's" {
		t.Errorf("the key is %q now", v)
	}
	srv.MustDo("DEL", resource)
	if side = st.play(t.Context(), sc.servers, sc.old, func(string, ...any) {}); !side.AsExpected {
		t.Errorf("%+v", side)
	}
	if n := srv.MustDo("DBSIZE"); n != "0" {
		t.Errorf("%s keys are left", n)
	}
}

func TestJSON(t *testing.T) {
	var out strings.Builder
	one := parse("one\non: one server\nA  SETNX key_resource_id lock_value → 1\nfails: falls\nA  " +
		"TryLock key_resource_id → granted\nholds: stands")[0]
	if err := played(t.Context(), &out, true, one, one); err != nil {
		t.Error(err)
	}
	d := json.NewDecoder(strings.NewReader(out.String()))
	for number := 1; number <= 2; number++ {
		var r Result
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Number != number || !r.Old.AsExpected || !r.Holdfast.AsExpected ||
			r.Old.Outcome != "falls" || len(r.Old.Steps) == 0 ||
			r.Holdfast.Steps[0] != (Step{"A", "TryLock " + resource, "granted"}) {
			t.Errorf("%+v", r)
		}
	}
	if d.More() {
		t.Errorf("more than two objects in %s", out.String())
	}
}

func TestUsage(t *testing.T) {
	for _, o := range []options{
		{output: "yaml"},
		{output: "text", backend: "etcd://localhost"},
		{output: "text", backend: "redis://:secret@localhost?max_ttl=30s"},
		{output: "text", backend: "redis://:se/cret@localhost"},
	} {
		err := run(t.Context(), new(strings.Builder), o)
		if !errors.Is(err, backend.ErrInvalid) || strings.Contains(err.Error(), "cret") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	if err := run(t.Context(), new(strings.Builder), options{output: "text"}); err == nil ||
		!strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("without a redis-server: %v", err)
	}
}

// An interrupted run ends at once, and says nothing of what it did not get to.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := interrupting{cancel: cancel}
	hangs := parse("hangs\non: one server\nA  is interrupted\nA  TryLock key_resource_id → " +
		"granted\nfails: x\nholds: y")[0]
	if err := played(ctx, &out, false, hangs); !errors.Is(err, context.Canceled) {
		t.Errorf("all = %v", err)
	}
	if strings.Contains(out.String(), "UNEXPECTED") {
		t.Errorf("it told\n%s", out.String())
	}
}

// interrupting ends the run when that is told.
type interrupting struct {
	strings.Builder
	cancel context.CancelFunc
}

func (i *interrupting) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "is interrupted") {
		i.cancel()
	}
	return i.Builder.Write(p)
}
