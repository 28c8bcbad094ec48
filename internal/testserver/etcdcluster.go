package testserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// An EtcdSet is an etcd cluster.
type EtcdSet struct{ Members []*EtcdMember }

// EtcdCluster starts a cluster of n members, and returns when all of them serve. A dead leader is
// replaced after about a second.
func EtcdCluster(t testing.TB, n int, opts ...Option) *EtcdSet {
	t.Helper()
	cfg := newConfig(opts)
	if cfg.port != 0 && n > 1 {
		t.Fatalf("testserver: EtcdCluster supports WithPort for one member only")
	}
	if cfg.auth != "" {
		args, err := tokenArgs(cfg.auth, memoryDir(t))
		if err != nil {
			t.Fatalf("testserver: %v", err)
		}
		cfg.args = append(args, cfg.args...)
	}
	set := &EtcdSet{}
	var initial []string
	for i := range n {
		m := prepareEtcd(t, fmt.Sprintf("m%d", i), cfg)
		set.Members = append(set.Members, m)
		initial = append(initial, m.name+"="+m.peerURL())
	}
	for _, m := range set.Members {
		m.initial = strings.Join(initial, ",")
		if err := m.launch(); err != nil {
			t.Fatalf("testserver: %v", err)
		}
	}
	for _, m := range set.Members {
		await(t, "etcd member "+m.name, m.serves)
	}
	if cfg.auth != "" {
		if err := set.enableAuth(); err != nil {
			t.Fatalf("testserver: %v", err)
		}
	}
	return set
}

// Addrs are the members' addresses.
func (s *EtcdSet) Addrs() (addrs []string) {
	for _, m := range s.Members {
		addrs = append(addrs, m.Addr())
	}
	return addrs
}

// Userinfo is what the URL of a client needs before the addresses: "user:password@" of a user who
// may read and write all keys, and nothing else, and "" if the cluster knows no users.
func (s *EtcdSet) Userinfo() string { return s.Members[0].Userinfo() }

// Leader returns the member that leads, as the others say it, and a follower. It waits until there
// is one.
func (s *EtcdSet) Leader(t testing.TB) (leader, follower *EtcdMember) {
	t.Helper()
	await(t, "leader", func() error {
		leader, follower = nil, nil
		for _, m := range s.Members {
			status, err := m.Status()
			switch {
			case err != nil:
			case status.Leader != "" && status.Leader == status.Header.MemberID:
				leader = m
			default:
				follower = m
			}
		}
		if leader == nil || follower == nil && len(s.Members) > 1 {
			return errors.New("no leader yet")
		}
		return nil
	})
	return leader, follower
}

// Rejoin kills a member, takes it out of the cluster, and has it come back as a new one with an
// empty disk.
func (s *EtcdSet) Rejoin(t testing.TB, m *EtcdMember) {
	t.Helper()
	status, err := m.Status()
	if err != nil {
		t.Fatalf("testserver: rejoin: %v", err)
	}
	m.Kill()
	var other *EtcdMember
	for _, o := range s.Members {
		if o != m {
			other = o
		}
	}
	await(t, "member to be removed", func() error {
		return other.Post("/v3/cluster/member/remove",
			map[string]string{"ID": status.Header.MemberID}, nil)
	})
	await(t, "member to be added", func() error {
		return other.Post("/v3/cluster/member/add", map[string][]string{"peerURLs": {m.peerURL()}},
			nil)
	})
	if err := m.wipe(); err != nil {
		t.Fatalf("testserver: rejoin: %v", err)
	}
	m.state = "existing"
	m.Restart()
}
