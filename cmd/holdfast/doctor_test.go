package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A finding is what doctor prints as JSON.
type finding struct{ Store, Check, Level, Text, Change string }

// findings runs doctor, and returns what it finds but for what is well.
func findings(t *testing.T, status int, url string) (bad []finding) {
	t.Helper()
	o := holdfast(t, "doctor", url, "-o", "json").want(t, status)
	for line := range strings.Lines(o.out) {
		var f finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if f.Level != "ok" {
			bad = append(bad, f)
		}
	}
	if strings.Contains(o.out+o.err, secret) || (status == 0) != (o.err == "") {
		t.Errorf("says %s%s", o.out, o.err)
	}
	return bad
}

func etcdURL(members ...*testserver.EtcdMember) string {
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr())
	}
	return "etcd://" + strings.Join(addrs, ",")
}

func redlockURL(nodes ...string) string {
	return "redlock://?" + url.Values{"node": nodes}.Encode()
}

// await waits for a server to be in a state.
func await(t *testing.T, state string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !there(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", state)
		}
	}
}

var persistent = testserver.WithArgs("--appendonly", "yes")

func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t, persistent)
	var nodes []string
	for _, s := range testserver.Redises(t, 3, persistent) {
		nodes = append(nodes, s.URL())
	}
	for _, url := range []string{
		srv.URL(), "rueidis://" + srv.Addr(), "redis://" + srv.Addr() + "?dialect=string",
		redlockURL(nodes...), etcdURL(testserver.EtcdCluster(t, 3).Members...),
	} {
		if bad := findings(t, 0, url); bad != nil {
			t.Errorf("%s: %+v", url, bad)
		}
	}
	unsaved := testserver.Redis(t)
	guarded := unsaved.URL() + "?max_ttl=1s"
	// It is over its first second.
	holdfast(t, "run", "k", "--backend", guarded, "--ttl=1s", "--wait=1m", "--", "true").want(t, 0)
	if bad := findings(t, 0, guarded); bad != nil {
		t.Errorf("a server that forgets, with the guard against that: %+v", bad)
	}
}

func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	redis := func(t *testing.T) *testserver.Server { return testserver.Redis(t, persistent) }
	user := func(t *testing.T, rules string) string {
		srv := redis(t)
		srv.MustDo(append([]string{"ACL", "SETUSER", "app", "on", ">" + secret, "~holdfast:*"},
			strings.Fields(rules)...)...)
		return "redis://app:" + secret + "@" + srv.Addr()
	}
	for name, c := range map[string]struct {
		setup func(t *testing.T) string // makes a server that is not well, and returns its URL
		want  []string                  // check level, and a part of its text
	}{
		"eviction": {func(t *testing.T) string {
			srv := redis(t)
			srv.MustDo("CONFIG", "SET", "maxmemory", "100mb")
			srv.MustDo("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			return srv.URL()
		}, []string{"eviction fail allkeys-lru"}},
		"no persistence": {func(t *testing.T) string {
			return testserver.Redis(t).URL()
		}, []string{"persistence warn appendonly is off"}},
		"replicas that the primary does without": {func(t *testing.T) string {
			primary := redis(t)
			testserver.Redis(t, testserver.WithArgs("--replicaof",
				"127.0.0.1 "+strconv.Itoa(primary.Port())))
			await(t, "replica", func() bool {
				return strings.Contains(primary.MustDo("INFO", "replication"), "state=online")
			})
			return primary.URL()
		}, []string{"replicas warn 1 connected"}},
		"fewer replicas than the URL waits for": {func(t *testing.T) string {
			return redis(t).URL() + "?replicas=1"
		}, []string{"replicas fail waits for 1", "lock fail 0 of 1 replicas"}},
		"the URL of a replica": {func(t *testing.T) string {
			primary := redis(t)
			return testserver.Redis(t,
				testserver.WithArgs("--replicaof", "127.0.0.1 "+strconv.Itoa(primary.Port()))).URL()
		}, []string{"reached fail READONLY"}},
		"a primary without the replicas that it must have": {func(t *testing.T) string {
			srv := redis(t)
			srv.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
			return srv.URL()
		}, []string{"reached fail NOREPLICAS"}},
		"memory nearly full": {func(t *testing.T) string {
			srv := redis(t)
			srv.MustDo("SETRANGE", "ballast", "50000000", "x")
			srv.MustDo("CONFIG", "SET", "maxmemory", "54000000")
			return srv.URL()
		}, []string{"memory warn of maxmemory"}},
		"a node of a cluster": {func(t *testing.T) string {
			srv := testserver.Redis(t, persistent, testserver.WithArgs("--cluster-enabled", "yes"))
			srv.MustDo("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
			await(t, "cluster", func() bool {
				return strings.Contains(srv.MustDo("CLUSTER", "INFO"), "cluster_state:ok")
			})
			return srv.URL()
		}, []string{"role fail node of a cluster"}},
		"wrong password": {func(t *testing.T) string {
			return "redis://:" + secret + "@" +
				testserver.Redis(t, testserver.WithPassword("right")).Addr()
		}, []string{"reached fail WRONGPASS"}},
		"a command is not allowed": {func(t *testing.T) string {
			return user(t, "&* +@all -hset")
		}, []string{"reached fail HSET"}},
		"no channels": {func(t *testing.T) string {
			return user(t, "+@all resetchannels")
		}, []string{"permissions warn publish", "wake-ups warn who waits polls"}},
		"no list": {func(t *testing.T) string {
			return user(t, "&* +@all -scan")
		}, []string{"list warn cannot be listed"}},
		"messages are lost": {func(t *testing.T) string {
			proxy := testserver.NewProxy(t, redis(t).Addr())
			proxy.Set(testserver.Fault{Mode: testserver.LoseMessages})
			return "redis://" + proxy.Addr()
		}, []string{"wake-ups warn no message came"}},
		"one server twice": {func(t *testing.T) string {
			srv, other := redis(t), redis(t)
			return redlockURL(srv.URL(), other.URL(), "rueidis://"+srv.Addr())
		}, []string{"independent fail same server as", "reached fail same server as"}},
		"two nodes": {func(t *testing.T) string {
			return redlockURL(redis(t).URL(), redis(t).URL())
		}, []string{"nodes warn bears no failure"}},
		"nobody there": {func(t *testing.T) string {
			srv := redis(t)
			srv.Kill()
			return srv.URL()
		}, []string{"reached fail cannot reach redis at 127.0.0.1"}},
		"etcd without space": {func(t *testing.T) string {
			m := testserver.Etcd(t)
			if err := m.Post("/v3/maintenance/alarm",
				map[string]string{"action": "ACTIVATE", "alarm": "NOSPACE"}, nil); err != nil {
				t.Fatal(err)
			}
			return etcdURL(m)
		}, []string{
			"members warn one, which bears no failure", "space fail quota is used up",
			"lock fail space exceeded",
		}},
		"etcd of Debian": {func(t *testing.T) string {
			testserver.OnlyInAll(t, "an old etcd, of Debian's")
			return etcdURL(testserver.EtcdCluster(t, 1, testserver.WithDebianEtcd()).Members[0])
		}, []string{
			"version warn may answer reads from the past",
			"members warn one, which bears no failure",
		}},
		"this process": {func(*testing.T) string {
			return "mem://"
		}, []string{"processes warn memory of one process"}},
		"folders": {func(t *testing.T) string {
			return redlockURL("file://"+t.TempDir(), "file://"+t.TempDir(), redis(t).URL())
		}, []string{"independent warn folder of this machine"}},
		"etcd, one of three": {func(t *testing.T) string {
			return etcdURL(testserver.EtcdCluster(t, 3).Members[0])
		}, []string{"members warn names 1 of 3"}},
		"etcd, a member down": {func(t *testing.T) string {
			set := testserver.EtcdCluster(t, 3)
			_, follower := set.Leader(t)
			follower.Kill()
			return etcdURL(set.Members...)
		}, []string{"members warn 1 of 3 endpoints do not answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			url := c.setup(t)
			bad := findings(t, failing(c.want), url)
			for _, f := range bad {
				if !slices.ContainsFunc(c.want, func(w string) bool {
					return is(f, w)
				}) || f.Change == "" || strings.Contains(f.Change, "holdfast doctor") {
					t.Errorf("not expected, or with nothing to do but what was done: %+v", f)
				}
			}
			for _, w := range c.want {
				if !slices.ContainsFunc(bad, func(f finding) bool { return is(f, w) }) {
					t.Errorf("not found: %s in %+v", w, bad)
				}
			}
		})
	}
}

// A cluster, and each of its nodes by the URL of one server.
func TestDoctorFindsACluster(t *testing.T) {
	t.Parallel()
	set := testserver.Cluster(t, persistent)
	if bad := findings(t, 0, set.URL()); len(bad) != 1 ||
		!is(bad[0], "failover warn a lock is granted twice") {
		t.Errorf("a cluster: %+v", bad)
	}
	refused := 0
	for _, node := range set.Nodes {
		bad := findings(t, 1, node.URL())
		for _, f := range bad {
			if !strings.Contains(f.Change, "redis+cluster://") {
				t.Errorf("%s: to change is %+v", node.URL(), f)
			}
		}
		// One has the slot of the first request.
		if !is(bad[0], "reached fail is a node of a Cluster: MOVED ") {
			continue
		}
		refused++
		if o := holdfast(t, "run", "k", "--wait=1h", "--backend", node.URL(), "true").want(t,
			77); !strings.Contains(o.err, "let --backend begin with redis+cluster://") {
			t.Errorf("run says %s", o.err)
		}
	}
	if refused < 2 {
		t.Errorf("%d of %d nodes say that they are some", refused, len(set.Nodes))
	}
}

// is reports whether f is what a test wants: check, level, and a part of its text.
func is(f finding, want string) bool {
	for _, level := range []string{" warn ", " fail "} {
		if check, text, ok := strings.Cut(want, level); ok {
			return f.Check == check && f.Level == strings.TrimSpace(level) &&
				strings.Contains(f.Text, text)
		}
	}
	return false
}

// failing is the exit status for what a test wants.
func failing(want []string) int {
	if strings.Contains(fmt.Sprint(want), " fail ") {
		return 1
	}
	return 0
}

// A request that takes too long for the TTL.
func TestDoctorFindsSlowness(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t, persistent)
	proxy := testserver.NewProxy(t, srv.Addr())
	proxy.Set(testserver.Fault{Mode: testserver.Delay, Delay: 100 * time.Millisecond})
	o := holdfastWith(t, []string{"HOLDFAST_TTL=1s"}, "doctor", "redis://"+proxy.Addr())
	if !strings.Contains(o.out, "little time to renew") &&
		!strings.Contains(o.out, "may come too late") {
		t.Errorf("%s%s", o.out, o.err)
	}
}

// Both clients talk to a server's socket, also by pub/sub, and name the path of one that is not
// there.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := testserver.Redis(t, persistent, testserver.WithPassword(secret),
		testserver.WithArgs("--unixsocket", filepath.Join(dir, "s")))
	for _, scheme := range []string{"redis+unix", "rueidis+unix"} {
		url := scheme + "://:" + secret + "@" + dir + "/s?db=3"
		if bad := findings(t, 0, url); bad != nil {
			t.Errorf("%s: %+v", scheme, bad)
		}
		holdfast(t, "run", scheme, "--backend", url, "--", "true").want(t, 0)
		for path, says := range map[string]string{
			dir + "/none": "cannot reach redis at " + dir + "/none: dial unix " + dir +
				"/none: connect: no such file or directory", "none": "three slashes",
		} {
			o := holdfast(t, "inspect", "k", "--backend", scheme+"://"+path)
			if !strings.Contains(o.err, says) || strings.Contains(o.err, secret) {
				t.Errorf("%s of %s says %s", scheme, path, o.err)
			}
		}
	}
	if keys := srv.MustDo("INFO", "keyspace"); !strings.Contains(keys, "db3:") ||
		strings.Contains(keys, "db0:") {
		t.Errorf("the locks are in %s", keys)
	}
}

// etcd's client can do it too.
func TestUnixSocketOfEtcd(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	forward(t, socket, testserver.Etcd(t).Addr())
	if bad := findings(t, 0, "etcd+unix://"+socket); len(bad) != 1 ||
		!is(bad[0], "members warn one") {
		t.Errorf("%+v", bad)
	}
	if bad := findings(t, 1, "etcd+unix://"+socket+"x"); len(bad) != 1 ||
		!strings.Contains(bad[0].Text, "dial unix "+socket+"x: ") {
		t.Errorf("%+v", bad)
	}
}

// forward listens on a socket, and forwards what comes to a server, until the test ends.
func forward(t *testing.T, socket, addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		tasks.Wait() // the clients have ended
	})
	tasks.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", addr)
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				tasks.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
					_ = way[1].Close()
				})
			}
		}
	})
}
