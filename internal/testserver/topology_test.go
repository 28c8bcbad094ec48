package testserver_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	set := testserver.Sentinel(t, testserver.WithPassword("pw"))
	const url = `^redis\+sentinel://:pw@(127\.0\.0\.1:\d+,){2}127\.0\.0\.1:\d+/mymaster$`
	if !regexp.MustCompile(url).MatchString(set.URL()) {
		t.Errorf("URL = %s", set.URL())
	}
	if now, err := set.Current(); now != set.Primary || err != nil {
		t.Fatalf("Current = %v, %v", now, err)
	}
	replicate(t, set.Primary, "SET k v", 2)
	set.Primary.Kill()
	next := set.AwaitFailover(t, set.Primary)
	if got := next.MustDo("GET", "k"); got != "v" {
		t.Errorf("GET = %s", got)
	}
	next.MustDo("SET", "k", "w")
}

func TestCluster(t *testing.T) {
	t.Parallel()
	set := testserver.Cluster(t)
	if want := "redis+cluster://" + strings.Join(set.Addrs(), ","); len(set.Nodes) != 3 ||
		set.URL() != want {
		t.Errorf("URL = %s", set.URL())
	}
	owners := map[*testserver.Server]bool{}
	for i := range 20 {
		key := fmt.Sprint("k", i)
		owner, err := set.Owner(key)
		if err != nil {
			t.Fatal(err)
		}
		owner.MustDo("SET", key, "v")
		owners[owner] = true
	}
	if len(owners) != 3 {
		t.Errorf("%d nodes serve keys, want 3", len(owners))
	}
}

func TestClusterWithReplicasFailsOver(t *testing.T) {
	t.Parallel()
	set := testserver.Cluster(t, testserver.WithReplicas(1), testserver.WithPassword("pw"))
	if len(set.Nodes) != 6 || !strings.HasPrefix(set.URL(), "redis+cluster://:pw@127.0.0.1:") {
		t.Errorf("%d nodes at %s", len(set.Nodes), set.URL())
	}
	owner, err := set.Owner("k")
	if err != nil {
		t.Fatal(err)
	}
	replicate(t, owner, "SET k v", 1)
	owner.Kill()
	if got := set.AwaitFailover(t, "k", owner).MustDo("GET", "k"); got != "v" {
		t.Errorf("GET = %s", got)
	}
}

// replicate writes and waits until n replicas have it. WAIT counts what its own connection has
// written.
func replicate(t *testing.T, primary *testserver.Server, command string, n int) {
	t.Helper()
	c := dial(t, primary.Addr())
	c.send("AUTH pw", command, fmt.Sprintf("WAIT %d 5000", n))
	c.want("+OK", "+OK", fmt.Sprintf(":%d", n))
}

func TestTopologiesRefuseWhatTheyCannotDo(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB){
		"Sentinel": func(t testing.TB) { testserver.Sentinel(t, testserver.WithTLS()) },
		"Cluster":  func(t testing.TB) { testserver.Cluster(t, testserver.WithPort(1)) },
	} {
		if text := failing(t, start); !strings.Contains(text, name+" supports neither") {
			t.Errorf("%s failed with %q", name, text)
		}
	}
}
