package redlock

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Defaults of a [Config].
const (
	DefaultDrift = 0.01

	// minTTL is the shortest lease: two rounds to all nodes, on a busy machine, must be a small
	// part of it.
	minTTL = 100 * time.Millisecond

	// minNodeTimeout and maxNodeTimeout are the bounds of the node timeout where none is given.
	minNodeTimeout = 10 * time.Millisecond
	maxNodeTimeout = 500 * time.Millisecond
)

// A Config adjusts a [Backend]. The zero Config is ready for use.
type Config struct {
	// NodeTimeout is how long a node is waited for, in each request; then it has given no answer.
	// It should be a small part of every TTL. Default: a tenth of the claim's TTL, from 10 ms to
	// 500 ms.
	NodeTimeout time.Duration

	// Drift is by how much clocks may run at different speeds, as a fraction, from 0.01 to 0.5.
	// Holders believe in 1 % and 3 ms less than their TTL; for more drift, nodes are asked for
	// longer leases, and a TTL so long that they would be over [backend.MaxTTL] is refused. Default
	// [DefaultDrift].
	Drift float64
}

func (cfg Config) withDefaults() (Config, error) {
	if d := cfg.NodeTimeout; d < 0 {
		return cfg, &backend.InvalidError{
			Field: "NodeTimeout", Value: d.String(),
			Reason: "is negative",
		}
	}
	if cfg.Drift == 0 {
		cfg.Drift = DefaultDrift
	}
	if !(cfg.Drift >= DefaultDrift && cfg.Drift <= 0.5) {
		bad := &backend.InvalidError{Field: "Drift", Value: fmt.Sprint(cfg.Drift)}
		bad.Reason = "is not a fraction from 0.01 to 0.5"
		return cfg, bad
	}
	return cfg, nil
}

// timeout bounds each request to a node about a claim with ttl.
func (cfg Config) timeout(ttl time.Duration) time.Duration {
	if cfg.NodeTimeout > 0 {
		return cfg.NodeTimeout
	}
	return min(max(ttl/10, minNodeTimeout), maxNodeTimeout)
}

// lease is what nodes are asked for, so that a hold of ttl, counted from before the request was
// sent, is as good as the holder takes it for.
//
// Each node's lease began later than that, and lasts for lease(ttl) by its clock. The Redlock
// text's "validity = TTL − elapsed − drift" is in three places: the elapsed part in the counting
// from before, 1 % and 3 ms of drift in the holder's deadline (package locker takes them off
// whatever a backend grants), and what Drift is above that here.
func (cfg Config) lease(ttl time.Duration) time.Duration {
	more := max(cfg.Drift-DefaultDrift, 0)
	return ttl + time.Duration(float64(ttl)*more)
}

// fits refuses a claim whose nodes would have to be asked for a lease that no store grants: a
// shorter one would end before its holder's belief, if clocks differ by as much as is allowed for.
func (cfg Config) fits(c backend.Claim) error {
	if lease := cfg.lease(c.TTL); lease > backend.MaxTTL {
		return &backend.InvalidError{Field: "ttl", Value: c.TTL.String(), Reason: fmt.Sprintf(
			"with a Drift of %v nodes would be asked for %v, over %v", cfg.Drift, lease,
			backend.MaxTTL)}
	}
	return nil
}
