package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

const (
	fullAt  = 0.9         // of a limit
	maxSkew = time.Second // between the clocks, beyond a round trip
)

// Diagnose is that of [backend.Backend]. It reads INFO of every primary. Findings that several of
// them share are told once. It takes a second and a half, between two readings of the clocks.
func (s *Store) Diagnose(ctx context.Context) (all []backend.Finding, err error) {
	began, clocks := time.Now(), s.clocks(ctx)
	sent := time.Now()
	infos, err := s.info(ctx, "default")
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		for _, f := range s.findings(server(info), sent, time.Now()) {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	all = append(all, s.rate(ctx, clocks, began)...)
	if s.noPublish.Load() {
		all = append(all, backend.Finding{
			Check: "permissions", Level: backend.Warn,
			Text: "the user may not publish: nobody is woken, and who waits polls",
			Change: "allow " + CommandsOnChannels + " on the channels &" +
				cmp.Or(s.cfg.Prefix, script.DefaultPrefix) + "*",
		})
	} else {
		all = append(all, backend.Finding{
			Check: "permissions", Level: backend.OK,
			Text: "the user may do all that locks need",
		})
	}
	return all, nil
}

// A server is what one says of itself by INFO.
type server string

func (v server) text(name string) string {
	text, _ := script.InfoField(string(v), name)
	return text
}

func (v server) number(name string) int {
	n, _ := strconv.Atoi(v.text(name)) // 0 for what an older server does not tell
	return n
}

// full is how much of a limit is used, as a fraction; 0 without a limit.
func (v server) full(used, limit string) float64 {
	most := v.number(limit)
	if most == 0 {
		return 0
	}
	return float64(v.number(used)) / float64(most)
}

// findings looks at one server's INFO, which was asked for at sent and there at got.
func (s *Store) findings(v server, sent, got time.Time) (all []backend.Finding) {
	find := func(check string, level backend.Level, text, change string) {
		all = append(all, backend.Finding{Check: check, Level: level, Text: text, Change: change})
	}
	ok := func(check, text string) { find(check, backend.OK, text, "") }

	name, version := "Redis", v.text("redis_version")
	if other := v.text("valkey_version"); other != "" {
		name, version = "Valkey", other
	}
	how := "by scripts"
	if s.native.on.Load() {
		how = "by SET … IFEQ"
	}
	if major, _, _ := strings.Cut(version, "."); len(major) == 1 && major < "6" {
		find("version", backend.Fail, name+" "+version,
			"upgrade to 7 or later; before 6 nothing is tested")
	} else {
		ok("version", name+" "+version+", free locks are taken "+how)
	}
	if v.text("role") == "slave" {
		find("role", backend.Fail, "the server is a replica",
			"name the primary, or find it by "+sentinelOr)
	}
	if v.text("cluster_enabled") == "1" && !s.cluster {
		find("role", backend.Fail,
			"the server is a node of a cluster, and the URL is for one server",
			"write redis+cluster:// or rueidis+cluster://")
	}

	if err := script.CheckMemory(string(v)); err != nil {
		find("eviction", backend.Fail, "maxmemory-policy is "+cmp.Or(v.text("maxmemory_policy"),
			"not told")+", which may evict a lock that is held",
			"CONFIG SET maxmemory-policy noeviction, or give locks a server of their own")
	} else {
		ok("eviction", "no key is evicted")
	}
	if full := v.full("used_memory", "maxmemory"); full > fullAt {
		find("memory", backend.Warn,
			fmt.Sprintf("%.0f%% of maxmemory is used; once it is full, no lock is granted",
				full*100),
			"raise maxmemory, or find out what fills it")
	}
	if full := v.full("connected_clients", "maxclients"); full > fullAt {
		find("clients", backend.Warn,
			fmt.Sprintf("%.0f%% of maxclients are connected; more are refused", full*100),
			"raise maxclients, or find out who connects so often")
	}
	s.persistence(v, find)
	s.replicas(v, find)
	if s.cluster {
		find("failover", backend.Warn,
			"a failover may lose the newest grants, and then a lock is granted twice: a Cluster "+
				"has no guard against that",
			"let the resource check tokens; or keep locks on one server or on Sentinel, with "+
				"max_ttl in the URL, on a quorum, or on etcd")
		if v.number("connected_slaves") > 0 { // else none takes over; safeguard: ttl-on-cluster
			least := s.ttlOnCluster(nodeTimeout).Round(time.Second)
			all = append(all, backend.Finding{
				Check: "ttl", Level: backend.OK, MinTTL: least,
				Text: fmt.Sprintf("a hold outlasts a primary that hangs if its TTL is %v or more "+
					"(with cluster-node-timeout %v, Redis' default)", least, nodeTimeout),
			})
		}
	}

	if us, err := strconv.ParseInt(v.text("server_time_usec"), 10, 64); err == nil {
		at := time.UnixMicro(us)
		if ahead, behind := at.Sub(got), sent.Sub(at); max(ahead, behind) > maxSkew {
			find("clock", backend.Warn, fmt.Sprintf("the server's clock is %v off this machine's",
				max(ahead, behind).Round(time.Millisecond)),
				"run NTP on both: leases go by the server's clock alone, but it must not be set "+
					"while locks are held, and times shown are wrong")
		} else {
			ok("clock", "the server's and this machine's agree")
		}
	}
	return all
}

// nodeTimeout is Redis' default of cluster-node-timeout, which only CONFIG tells.
const nodeTimeout = 15 * time.Second

// ttlOnCluster is how long a lease has to be to outlast a primary that hangs from one moment to the
// next: then five eighths of it are left, as it is renewed each third, a tenth more or less. A
// replica serves after the node time-out, and up to 3 s for the vote. A client may need a request
// time-out to hear of it, one more for the renewal that it has sent to the old primary meanwhile,
// and a second until it is sent again.
func (s *Store) ttlOnCluster(node time.Duration) time.Duration {
	return (node + 2*s.cfg.RequestTimeout + 4*time.Second) * 8 / 5
}

const sentinelOr = "redis+sentinel:// or rueidis+sentinel://"

func (s *Store) persistence(v server, find func(string, backend.Level, string, string)) {
	const check = "persistence"
	switch guarded := s.cfg.MaxTTL != 0; {
	case v.text("aof_last_write_status") == "err":
		find(check, backend.Fail, "the last write of the append-only file failed",
			"look at the server's log and disk")
	case v.text("rdb_last_bgsave_status") == "err":
		find(check, backend.Fail, "the last snapshot failed, after which Redis refuses writes",
			"look at the server's log and disk")
	case v.text("aof_enabled") == "1":
		find(check, backend.OK, "appendonly is on", "")
	case guarded:
		find(check, backend.OK, "appendonly is off, and after a restart nothing is "+
			"granted for max_ttl", "")
	default:
		find(check, backend.Warn,
			"appendonly is off: a server that restarts has forgotten who holds, and grants again",
			"set appendonly yes with appendfsync always; or put max_ttl into every client's URL, "+
				"so that it first waits")
	}
}

func (s *Store) replicas(v server, find func(string, backend.Level, string, string)) {
	const check = "replicas"
	n := v.number("connected_slaves")
	// told if there is a minimum.
	_, minimum := script.InfoField(string(v), "min_slaves_good_slaves")
	text := strconv.Itoa(n) + " connected"
	switch {
	case n < s.cfg.Replicas:
		find(check, backend.Fail, text+", and the URL waits for "+strconv.Itoa(s.cfg.Replicas),
			"start replicas, or lower replicas= in the URL")
	case n > 0 && !minimum:
		change := "set min-replicas-to-write 1 and a short min-replicas-max-lag"
		if !s.cluster { // which has no guard
			change += ", and give max_ttl in the URL"
		}
		find(check, backend.Warn,
			text+", and the primary goes on granting without them: after a failover two "+
				"may hold a lock", change)
	default:
		find(check, backend.OK, text, "")
	}
}
