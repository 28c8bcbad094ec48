package redis

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

func TestConfigRefuses(t *testing.T) {
	for why, cfg := range map[string]Config{
		"below 1ms":       {RequestTimeout: time.Microsecond},
		"is not known":    {Dialect: "redlock"},
		"between 10ms":    {MaxTTL: time.Millisecond},
		"and 24h":         {MaxTTL: 25 * time.Hour},
		"not heed":        {MaxTTL: time.Minute, Dialect: DialectString},
		"with max_ttl":    {ReplicaLag: time.Second},
		"positive":        {MaxTTL: time.Minute, ReplicaLag: -1},
		"small number":    {Replicas: -1},
		"control":         {Dialect: DialectString, Prefix: "a\n"},
		"over 1024 bytes": {Dialect: DialectString, Prefix: strings.Repeat("p", backend.MaxKey+1)},
	} {
		_, err := New(&cfg, "redis")
		if invalid := (*backend.InvalidError)(nil); !errors.As(err, &invalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v: %v, want an InvalidError with %q", cfg, err, why)
		}
	}
}

// A sentinel may promote a replica, so the guard reckons with the old primary.
func TestGuardOfSentinel(t *testing.T) {
	for raw, want := range map[string]time.Duration{
		"redis://h?max_ttl=30s":                            0,
		"redis://h?max_ttl=30s&replica_lag=3s":             3 * time.Second,
		"redis+sentinel://h/m?max_ttl=30s":                 DefaultReplicaLag,
		"rediss+sentinel://h/m?max_ttl=30s&replica_lag=1s": time.Second,
		"redis+sentinel://h/m":                             0,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		target, err := ParseURL(u, "redis", nil)
		if err != nil || target.Config.ReplicaLag != want {
			t.Errorf("%s: %v, %v, want %v", raw, target.Config.ReplicaLag, err, want)
		}
	}
}

// over returns a context that has ended, under which what is asked is validated, and not sent.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestClaimsThatOutliveTheGrace(t *testing.T) {
	s, err := New(&Config{MaxTTL: time.Minute}, "redis")
	if err != nil {
		t.Fatal(err)
	}
	c := backend.Claim{Key: "k", Owner: "me", TTL: time.Minute}
	if err := s.validate(&c); err != nil {
		t.Error(err)
	}
	c.TTL++
	if err := s.validate(&c); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	if _, err := s.Release(over(), c); errors.Is(err, backend.ErrInvalid) {
		t.Errorf("its release: %v", err)
	}
}

// covers: R11
func TestKeysThatAClusterCannotKeep(t *testing.T) {
	for dialect, refused := range map[string]bool{"": false, DialectString: true} {
		s, err := New(&Config{Dialect: dialect}, "redis")
		if err != nil {
			t.Fatal(err)
		}
		for _, cluster := range []bool{false, true} {
			if cluster {
				if err := s.OnCluster(); err != nil {
					t.Fatal(err)
				}
			}
			c := backend.Claim{Key: "a}b", Owner: "me", TTL: time.Minute}
			_, released := s.Release(over(), c)
			for verb, err := range map[string]error{"acquire": s.validate(&c), "release": released} {
				if errors.Is(err, backend.ErrInvalid) != (cluster && refused) {
					t.Errorf("dialect %q, cluster %v: %s: %v", dialect, cluster, verb, err)
				}
			}
		}
	}
}
