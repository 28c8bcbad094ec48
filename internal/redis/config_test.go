package redis

import (
	"context"
	"errors"
	"net/url"
	"strconv"
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
		if invalid := (*backend.InvalidError)(nil); !errors.As(err, &invalid) ||
			!strings.Contains(err.Error(), why) {
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

// A tombstone outlasts what may be on its way for a RequestTimeout, and the lease that it would get
// then.
//
// covers: A4
func TestTombstonesOutlastARequest(t *testing.T) {
	c := backend.Claim{Key: "k", Owner: "me", TTL: time.Minute}
	tombstone := func(timeout time.Duration) time.Duration {
		t.Helper()
		s, err := New(&Config{RequestTimeout: timeout}, "redis")
		if err != nil {
			t.Fatal(err)
		}
		args := s.Layout.Release(c).Args
		ms, err := strconv.Atoi(args[len(args)-1])
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(ms) * time.Millisecond
	}
	if short, long := tombstone(time.Second), tombstone(9*time.Second); short < c.TTL+time.Second ||
		long-short != 8*time.Second {
		t.Errorf("tombstones of %v and %v, for requests that take 1s and 9s", short, long)
	}
}

// A server that may have forgotten locks grants none for a while. Where it has replicas that is
// longer: by the lag for which a primary that was replaced may go on granting, and two seconds.
//
// covers: R3
func TestGraceHasTheLag(t *testing.T) {
	grace := func(lag time.Duration) time.Duration {
		t.Helper()
		s, err := New(&Config{MaxTTL: time.Minute, ReplicaLag: lag}, "redis")
		if err != nil {
			t.Fatal(err)
		}
		_, ms, _ := strings.Cut(s.Layout.Rule(), "/")
		d, err := time.ParseDuration(ms + "ms")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if alone, lags := grace(0), grace(10*time.Second); alone < time.Minute ||
		lags-alone != 12*time.Second {
		t.Errorf("closed for %v, and for %v with replicas that lag by 10s; want 12s more", alone,
			lags)
	}
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
			for verb, err := range map[string]error{
				"acquire": s.validate(&c),
				"release": released,
			} {
				if errors.Is(err, backend.ErrInvalid) != (cluster && refused) {
					t.Errorf("dialect %q, cluster %v: %s: %v", dialect, cluster, verb, err)
				}
			}
		}
	}
}
