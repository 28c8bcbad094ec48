package testserver

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A ClusterSet is a Redis Cluster of three primaries that share all slots, with or without
// replicas.
type ClusterSet struct {
	Nodes []*Server // the primaries first, as it was set up
}

const primaries = 3

// Cluster starts a cluster, and returns when every node says that it is complete and every replica
// is in sync. A node is taken for dead after two seconds (--cluster-node-timeout). The options
// apply to every node; [WithReplicas] is for this; WithPort and WithTLS are not supported. It takes
// about three seconds: a new primary refuses writes for the first two.
func Cluster(t testing.TB, opts ...Option) *ClusterSet {
	t.Helper()
	cfg := newConfig(opts)
	if cfg.tls || cfg.port != 0 {
		t.Fatalf("testserver: Cluster supports neither WithTLS nor WithPort")
	}
	base := WithArgs("--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
		"--repl-diskless-sync-delay", "0")
	set := &ClusterSet{Nodes: Redises(t, primaries*(1+cfg.replicas),
		append([]Option{base}, opts...)...)}
	if err := set.create(t, cfg); err != nil {
		t.Fatalf("testserver: create cluster: %v", err)
	}
	await(t, "complete cluster", func() error { return set.complete(cfg.replicas) })
	return set
}

// create hands out the slots and introduces the nodes to each other.
func (s *ClusterSet) create(t testing.TB, cfg config) error {
	log, err := openLog(filepath.Join(t.TempDir(), "create.log"))
	if err != nil {
		return err
	}
	defer log.file.Close()
	args := append([]string{"--cluster", "create"}, addrs(s.Nodes)...)
	args = append(args, "--cluster-replicas", fmt.Sprint(cfg.replicas), "--cluster-yes")
	if cfg.password != "" {
		args = append(args, "-a", cfg.password)
	}
	cli, err := startProcess(log.file, "redis-cli", args...)
	if err != nil {
		return err
	}
	if err := poll(nil, startLimit, cli.ended); err != nil {
		cli.kill()
		return fmt.Errorf("%w\n%s", err, log.read())
	}
	if !cli.cmd.ProcessState.Success() {
		return fmt.Errorf("redis-cli: %v\n%s", cli.cmd.ProcessState, log.read())
	}
	return nil
}

// complete returns nil when every node knows all nodes, finds all slots served, and all replicas
// are in sync.
func (s *ClusterSet) complete(replicas int) error {
	for i, node := range s.Nodes {
		info, err := node.Do("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		for _, fact := range []string{
			"cluster_state:ok",
			fmt.Sprintf("cluster_known_nodes:%d\r", len(s.Nodes)),
		} {
			if !strings.Contains(fmt.Sprint(info), fact) {
				return fmt.Errorf("node %s does not say %q:\n%v", node.Addr(), fact, info)
			}
		}
		if i < primaries {
			if err := replicasOnline(node, replicas); err != nil {
				return err
			}
		}
	}
	return nil
}

// URL is redis+cluster://h1:p1,h2:p2,…, with the password if there is one.
func (s *ClusterSet) URL() string {
	return "redis+cluster://" + userinfo(s.Nodes[0]) + strings.Join(s.Addrs(), ",")
}

// Addrs are the nodes' addresses.
func (s *ClusterSet) Addrs() []string { return addrs(s.Nodes) }

// Owner returns the primary that serves key now, or an error if none does, as during a failover.
func (s *ClusterSet) Owner(key string) (*Server, error) { return s.ownerBut(key, nil) }

// ownerBut does not ask except, which may hang.
func (s *ClusterSet) ownerBut(key string, except *Server) (*Server, error) {
	err := errors.New("no nodes")
	for _, node := range s.Nodes {
		if node == except {
			continue
		}
		// Any command on a key is answered by the key's owner only, and redirected by all others.
		if _, err = node.Do("EXISTS", key); err == nil {
			return node, nil
		}
	}
	return nil, fmt.Errorf("no node serves %q: %w", key, err)
}

// AwaitFailover blocks until another node than old serves key, and returns it. It fails the test if
// that does not come.
func (s *ClusterSet) AwaitFailover(t testing.TB, key string, old *Server) *Server {
	t.Helper()
	var owner *Server
	await(t, "failover", func() (err error) { owner, err = s.ownerBut(key, old); return err })
	return owner
}

// Move moves the slot of key, with what is in it, to another primary, as redis-cli reshards.
func (s *ClusterSet) Move(t testing.TB, key string, from, to *Server) {
	t.Helper()
	end := s.BeginMove(t, key, from, to)
	for {
		reply, err := from.Do("CLUSTER", "GETKEYSINSLOT", to.MustDo("CLUSTER", "KEYSLOT", key),
			"100")
		keys, _ := reply.([]any)
		if err != nil {
			t.Fatalf("testserver: move: %v", err)
		}
		if len(keys) == 0 {
			break
		}
		for _, k := range keys {
			s.MoveKey(t, fmt.Sprint(k), from, to)
		}
	}
	end()
}

// BeginMove has both servers know that the slot of key moves. Its keys stay where they are, see
// MoveKey, and end gives the slot to the other server.
func (s *ClusterSet) BeginMove(t testing.TB, key string, from, to *Server) (end func()) {
	t.Helper()
	slot := to.MustDo("CLUSTER", "KEYSLOT", key)
	fromID, toID := from.MustDo("CLUSTER", "MYID"), to.MustDo("CLUSTER", "MYID")
	to.MustDo("CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.MustDo("CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	return func() {
		// Who has it now knows first, so that it is never nobody's.
		to.MustDo("CLUSTER", "SETSLOT", slot, "NODE", toID)
		from.MustDo("CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}

// MoveKey moves one key of a slot that moves.
func (s *ClusterSet) MoveKey(t testing.TB, key string, from, to *Server) {
	t.Helper()
	if _, err := from.Do("MIGRATE", "127.0.0.1", fmt.Sprint(to.Port()), key, "0", "5000",
		"REPLACE"); err != nil {
		t.Fatalf("testserver: move %v: %v", key, err)
	}
}
