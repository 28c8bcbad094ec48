package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A SentinelSet is a primary with two replicas, watched by three sentinels of which two must agree
// (quorum 2). A primary is taken for dead after 2 s of silence, as a busy machine may stand still
// for less; a new one is named about 3.5 s after a SIGKILL. One that was only stopped remains a
// primary for some seconds after Cont, until the sentinels tell it otherwise: a split brain to test
// with.
type SentinelSet struct {
	Name      string    // the name that the sentinels know the primary by
	Primary   *Server   // the first primary; see Current
	Replicas  []*Server // its replicas
	Sentinels []*Server
}

const (
	sentinelName  = "mymaster"
	sentinelCount = 3
)

// Sentinel starts a set, and returns when the replicas are in sync and every sentinel knows every
// other and the replicas. The options apply to the primary and the replicas; WithPort and WithTLS
// are not supported. It takes about a second.
func Sentinel(t testing.TB, opts ...Option) *SentinelSet {
	t.Helper()
	if cfg := newConfig(opts); cfg.tls || cfg.port != 0 {
		t.Fatalf("testserver: Sentinel supports neither WithTLS nor WithPort")
	}
	// Without this a primary waits five seconds for more replicas before it sends its data to the
	// first.
	opts = append([]Option{WithArgs("--repl-diskless-sync-delay", "0")}, opts...)
	set := &SentinelSet{Name: sentinelName, Primary: Redis(t, opts...)}
	of := WithArgs("--replicaof", "127.0.0.1", fmt.Sprint(set.Primary.Port()))
	set.Replicas = Redises(t, 2, append(opts, of)...)
	// Sentinels ask a server for its replicas when they first meet it, and then every ten seconds.
	await(t, "replicas in sync", func() error {
		return replicasOnline(set.Primary, len(set.Replicas))
	})
	set.Primary.MustDo("PUBLISH", "testserver", "follow")
	await(t, "replicas that follow", set.following)
	for range sentinelCount {
		set.Sentinels = append(set.Sentinels, sentinel(t, set.Primary))
	}
	set.hello(100) // they meet by announcing themselves, every two seconds unless hurried
	await(t, "sentinels that know each other", set.complete)
	set.hello(2000)
	return set
}

// sentinel starts one sentinel. It writes what it learns to its configuration file.
func sentinel(t testing.TB, primary *Server) *Server {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "sentinel monitor %s 127.0.0.1 %d 2\n", sentinelName, primary.Port())
	fmt.Fprintf(&b, "sentinel down-after-milliseconds %s 2000\n", sentinelName)
	fmt.Fprintf(&b, "sentinel failover-timeout %s 5000\n", sentinelName)
	if p := primary.cfg.password; p != "" {
		fmt.Fprintf(&b, "sentinel auth-pass %s %s\n", sentinelName, p)
	}
	cfg := config{dir: t.TempDir()}
	cfg.sentinel = filepath.Join(cfg.dir, "sentinel.conf")
	if err := os.WriteFile(cfg.sentinel, []byte(b.String()), 0o600); err != nil {
		t.Fatalf("testserver: %v", err)
	}
	return run(t, cfg)
}

// hello sets how often sentinels announce themselves. Servers before 7.0 cannot be told, and take
// longer.
func (s *SentinelSet) hello(milliseconds int) {
	for _, node := range s.Sentinels {
		_, _ = node.Do("SENTINEL", "DEBUG", "publish-period", fmt.Sprint(milliseconds))
	}
}

// complete returns nil when every sentinel knows all of the set, and takes all of it for alive.
func (s *SentinelSet) complete() error {
	for _, node := range s.Sentinels {
		primary, err := node.Do("SENTINEL", "MASTER", s.Name)
		if err != nil {
			return err
		}
		replicas, err := node.Do("SENTINEL", "REPLICAS", s.Name)
		if err != nil {
			return err
		}
		known := fmt.Sprint(primary, replicas)
		for _, fact := range []string{
			" flags master ", " num-slaves 2 ",
			" num-other-sentinels 2 ",
		} {
			if !strings.Contains(known, fact) {
				return fmt.Errorf("sentinel %s does not say%sin %s", node.Addr(), fact, known)
			}
		}
		if n := strings.Count(known, " master-link-status ok "); n != len(s.Replicas) {
			return fmt.Errorf("sentinel %s sees %d replicas in sync: %s", node.Addr(), n, known)
		}
	}
	return nil
}

// URL is redis+sentinel://h1:p1,h2:p2,h3:p3/mymaster, with the password of the primary if there is
// one.
func (s *SentinelSet) URL() string {
	return "redis+sentinel://" + userinfo(s.Primary) + strings.Join(s.Addrs(), ",") + "/" + s.Name
}

// Addrs are the sentinels' addresses.
func (s *SentinelSet) Addrs() []string { return addrs(s.Sentinels) }

// Current returns the server that a majority of sentinels names as the primary now, or an error if
// no majority agrees.
func (s *SentinelSet) Current() (*Server, error) {
	votes := map[string]int{}
	for _, node := range s.Sentinels {
		reply, err := node.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
		if addr, ok := reply.([]any); ok && err == nil && len(addr) == 2 {
			votes[fmt.Sprintf("%v:%v", addr...)]++
		}
	}
	for _, node := range append([]*Server{s.Primary}, s.Replicas...) {
		if votes[node.Addr()] > len(s.Sentinels)/2 {
			return node, nil
		}
	}
	return nil, fmt.Errorf("sentinels do not agree: %v", votes)
}

// AwaitFailover blocks until a majority of sentinels names another primary than old and that one
// takes writes, and returns it. It fails the test if that does not come.
func (s *SentinelSet) AwaitFailover(t testing.TB, old *Server) *Server {
	t.Helper()
	var current *Server
	await(t, "failover", func() (err error) {
		if current, err = s.Current(); err != nil {
			return err
		}
		if current == old {
			return errors.New("the old primary is still named")
		}
		role, err := current.Do("ROLE")
		if err == nil && !strings.HasPrefix(fmt.Sprint(role), "[master ") {
			err = fmt.Errorf("%s is %v", current.Addr(), role)
		}
		return err
	})
	return current
}

// await polls for a state of several servers.
func await(t testing.TB, what string, ready func() error) {
	t.Helper()
	if err := poll(nil, startLimit, ready); err != nil {
		t.Fatalf("testserver: %s: %v", what, err)
	}
}

// replicasOnline returns nil when n replicas of primary are in sync.
func replicasOnline(primary *Server, n int) error {
	info, err := primary.Do("INFO", "replication")
	if err == nil && strings.Count(fmt.Sprint(info), "state=online") != n {
		err = fmt.Errorf("%v", info)
	}
	return err
}

// following returns nil when the replicas have acknowledged something that was sent to them since
// they came. One that has just loaded the primary's data is sent nothing until it says so, up to a
// second later, and WAIT does not count it until then.
func (s *SentinelSet) following() error {
	info, err := s.Primary.Do("INFO", "replication")
	if err == nil && strings.Count(fmt.Sprint(info), ",offset=0,") > 0 {
		err = fmt.Errorf("%v", info)
	}
	return err
}

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}
