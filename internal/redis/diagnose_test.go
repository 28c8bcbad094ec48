package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A clocked server has a clock of its own, whose gain on this machine's it is asked for.
type clocked struct {
	Transport

	runs     []string
	gains    func(run string, since time.Duration) time.Duration
	trip     time.Duration // of a request and its reply, of which the server is asked at the end
	late     time.Duration // of every other one, besides
	began    time.Time
	silent   bool // about its clock
	requests int
}

func (c *clocked) Info(_ context.Context, section string) (infos []string, err error) {
	time.Sleep(c.trip)
	if c.requests++; c.requests%2 == 0 {
		time.Sleep(c.late)
	}
	for _, run := range c.runs {
		info := "redis_version:8.4.0\r\nrole:master\r\nmaxmemory:0\r\n" +
			"maxmemory_policy:noeviction\r\naof_enabled:1\r\nrun_id:" + run + "\r\n"
		if !c.silent {
			since := time.Since(c.began)
			info += fmt.Sprintf("server_time_usec:%d\r\n",
				c.began.Add(since+c.gains(run, since)).UnixMicro())
		}
		infos = append(infos, info)
	}
	return infos, nil
}
func (c *clocked) Messages(context.Context) Messages { return nil }

// TestClockRate: by two readings of the clock, which are some time apart and each made within a
// round trip.
// covers: D1, D2, D3
func TestClockRate(t *testing.T) {
	rate := func(part float64) func(string, time.Duration) time.Duration {
		return func(_ string, since time.Duration) time.Duration {
			return time.Duration(part * float64(since))
		}
	}
	for name, c := range map[string]struct {
		clocked
		level backend.Level
		want  string
	}{
		"even": {
			clocked{gains: rate(0), trip: time.Millisecond},
			backend.OK,
			"within 0.067% of this machine's, by two readings 1.5s apart; holders allow for 1%",
		},
		"a little": {
			clocked{gains: rate(0.002), trip: time.Millisecond},
			backend.OK,
			"within 0.27%",
		},
		"slewed": {
			clocked{gains: rate(0.0833), trip: time.Millisecond},
			backend.Fail,
			"at least 8.3% faster",
		},
		"just too fast": {
			clocked{gains: rate(0.012), trip: time.Millisecond},
			backend.Fail,
			"at least 1.1% faster",
		},
		"slow at times": {clocked{
			gains: rate(0.03), trip: time.Millisecond,
			late: 60 * time.Millisecond,
		}, backend.Fail, "at least 2.9% faster"},
		"slow": {
			clocked{gains: rate(-0.0833), trip: time.Millisecond},
			backend.Warn,
			"at least 8.3% slower",
		},
		"far away": {
			clocked{gains: rate(0), trip: 100 * time.Millisecond},
			backend.OK,
			"by 6.7% at most, and requests are too slow to tell more",
		},
		"far and fast": {
			clocked{gains: rate(0.5), trip: 100 * time.Millisecond},
			backend.Fail,
			"faster than this machine's",
		},
		"set forward": {clocked{
			trip: time.Millisecond,
			gains: func(_ string, since time.Duration) time.Duration {
				if since > time.Second {
					return time.Hour
				}
				return 0
			},
		}, backend.Fail, "was set, by about 1h0m0"},
		"set back": {clocked{
			trip: time.Millisecond,
			gains: func(_ string, since time.Duration) time.Duration {
				if since > time.Second {
					return -time.Hour
				}
				return 0
			},
		}, backend.Fail, "was set, by about -1h0m0"},
		"one of three": {clocked{
			runs: []string{"a", "b", "c"}, trip: time.Millisecond,
			gains: func(run string, since time.Duration) time.Duration {
				return map[string]time.Duration{"b": since / 20}[run]
			},
		}, backend.Fail, "at least 4."},
		"an old server": {clocked{silent: true, trip: time.Millisecond}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := New(&Config{}, "redis")
				if err != nil {
					t.Fatal(err)
				}
				server := c.clocked
				server.began = time.Now()
				if server.runs == nil {
					server.runs = []string{"a"}
				}
				s.Use(&server)
				all, err := s.Diagnose(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var found []backend.Finding
				for _, f := range all {
					if f.Check == "clock rate" {
						found = append(found, f)
					}
				}
				if c.want == "" {
					if found != nil || time.Since(server.began) > time.Second {
						t.Errorf("found %+v after %v, want nothing and no wait", found,
							time.Since(server.began))
					}
					return
				}
				if len(found) != 1 || found[0].Level != c.level ||
					!strings.Contains(found[0].Text, c.want) ||
					(found[0].Change == "") != (c.level == backend.OK) {
					t.Errorf("found %+v, want %s %q", found, c.level, c.want)
				}
			})
		})
	}
}

// TestClockRateIsBounded: whenever within its round trip the server looked at its clock, the bounds
// hold.
func TestClockRateIsBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	for range 10_000 {
		rate := random.Float64()*0.4 - 0.2
		read := func(sent time.Duration) reading {
			trip := time.Duration(random.Int64N(int64(200 * time.Millisecond)))
			at := sent + time.Duration(random.Float64()*float64(trip))
			return reading{
				start.Add(sent), start.Add(sent + trip),
				start.Add(time.Hour + at + time.Duration(rate*float64(at))),
			}
		}
		least, most := bound(read(0), read(rateApart))
		// The readings are up to 0.2s further apart, or closer.
		if off := 0.2 * 0.2; least > rate+off || most < rate-off || least > most {
			t.Fatalf("a clock of rate %v is bounded by %v and %v", rate, least, most)
		}
	}
}

// TestClusterHasNoGuard says so, and tells of no max_ttl, which a cluster refuses, but which TTL it
// needs.
func TestClusterHasNoGuard(t *testing.T) {
	s, err := New(&Config{}, "redis")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.OnCluster(); err != nil {
		t.Fatal(err)
	}
	const node = "redis_version:8.4.0\r\nrole:master\r\ncluster_enabled:1\r\n" +
		"maxmemory_policy:noeviction\r\n"
	for info, wantTTL := range map[string]string{
		node + "connected_slaves:1\r\n": " 40s ", // (15s + 2·3s + 4s)·8/5
		node + "connected_slaves:0\r\n": "",      // none takes over
	} {
		var text, ttl string
		for _, f := range s.findings(server(info), time.Now(), time.Now()) {
			switch f.Check {
			case "failover":
				text = f.Text
			case "ttl":
				ttl = f.Text
			case "replicas":
				if strings.Contains(f.Change, "max_ttl") ||
					(f.Level == backend.Warn) != (wantTTL != "") {
					t.Errorf("%+v", f)
				}
			}
		}
		if !strings.Contains(text, "a lock is granted twice") {
			t.Errorf("a failover is said to be %q", text)
		}
		if (ttl == "") != (wantTTL == "") || !strings.Contains(ttl, wantTTL) {
			t.Errorf("the TTL that is needed is said to be %q, want %q", ttl, wantTTL)
		}
	}
}

// TestFindings judges what no test can set up on a real server.
func TestFindings(t *testing.T) {
	s, err := New(&Config{}, "redis")
	if err != nil {
		t.Fatal(err)
	}
	const good = "redis_version:8.4.0\r\nrole:master\r\nmaxmemory:0\r\n" +
		"maxmemory_policy:noeviction\r\naof_enabled:1\r\n"
	sent := time.Now()
	got := sent.Add(10 * time.Millisecond)
	clock := func(d time.Duration) string {
		return fmt.Sprintf("server_time_usec:%d\r\n", sent.Add(d).UnixMicro())
	}
	for info, want := range map[string][]string{
		good: nil, good + clock(5*time.Millisecond): nil, good + clock(-900*time.Millisecond): nil,
		good + clock(-5*time.Second): {"clock warn"}, good + clock(time.Hour): {"clock warn"},
		good + "aof_last_write_status:err\r\n":                       {"persistence fail"},
		good + "rdb_last_bgsave_status:err\r\n":                      {"persistence fail"},
		good + "connected_slaves:2\r\nmin_slaves_good_slaves:2\r\n":  nil,
		good + "connected_clients:9950\r\nmaxclients:10000\r\n":      {"clients warn"},
		"redis_version:5.0.14\r\n" + good:                            {"version fail"},
		"valkey_version:9.1.0\r\n" + good:                            nil,
		"role:slave\r\n" + good:                                      {"role fail"},
		good + "cluster_enabled:0\r\nused_memory:95\r\n":             nil,
		"maxmemory:100\r\nused_memory:95\r\n" + good:                 {"memory warn"},
		"maxmemory:9\r\nmaxmemory_policy:volatile-lru\r\n" + good:    {"eviction fail"},
		"aof_enabled:0\r\n" + good + "rdb_last_bgsave_status:ok\r\n": {"persistence warn"},
	} {
		var bad []string
		for _, f := range s.findings(server(info), sent, got) {
			if f.Level != backend.OK {
				bad = append(bad, f.Check+" "+string(f.Level))
			}
			if (f.Level == backend.OK) != (f.Change == "") {
				t.Errorf("%+v", f)
			}
		}
		if !slices.Equal(bad, want) {
			t.Errorf("%q: %v, want %v", info, bad, want)
		}
	}
}
