package redis

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// TestFindings judges what no test can set up on a real server.
func TestFindings(t *testing.T) {
	s, err := New(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	const good = "redis_version:8.4.0\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"
	sent := time.Now()
	got := sent.Add(10 * time.Millisecond)
	clock := func(d time.Duration) string { return fmt.Sprintf("server_time_usec:%d\r\n", sent.Add(d).UnixMicro()) }
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
