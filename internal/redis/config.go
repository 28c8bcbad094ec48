package redis

import (
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// DefaultRequestTimeout bounds a request when [Config] does not say otherwise.
const DefaultRequestTimeout = 3 * time.Second

// DefaultReplicaLag is Redis's own default of min-replicas-max-lag.
const DefaultReplicaLag = 10 * time.Second

// DialectString is the Config.Dialect that other libraries speak.
const DialectString = "string"

// Config is what both backends let a program choose. Their own Config says what each means.
type Config struct {
	Prefix         string
	Retention      time.Duration
	RequestTimeout time.Duration
	AllowEviction  bool
	MaxTTL         time.Duration
	ReplicaLag     time.Duration
	Dialect        string
	Replicas       int
}

// layout checks cfg, puts defaults into it, and returns what it makes of locks.
func (cfg *Config) layout() (script.Layout, error) {
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	refuse := func(field, value, reason string) (script.Layout, error) {
		return script.Layout{}, &backend.InvalidError{Field: field, Value: value, Reason: reason}
	}
	switch {
	case cfg.RequestTimeout < time.Millisecond:
		return refuse("request_timeout", cfg.RequestTimeout.String(), "is below 1ms")
	case cfg.Dialect != "" && cfg.Dialect != DialectString:
		return refuse("dialect", cfg.Dialect, "is not known; there is "+DialectString)
	case cfg.MaxTTL != 0 && backend.ValidateTTL(cfg.MaxTTL, script.MinTTL) != nil:
		return refuse("max_ttl", cfg.MaxTTL.String(),
			"must be between "+script.MinTTL.String()+" and "+backend.MaxTTL.String())
	case cfg.MaxTTL != 0 && cfg.Dialect != "":
		return refuse("max_ttl", cfg.MaxTTL.String(),
			"cannot be had with a dialect: the other libraries would not heed the guard")
	case cfg.Replicas < 0 || cfg.Replicas > 100:
		return refuse("replicas", strconv.Itoa(cfg.Replicas), "must be a small number")
	case cfg.ReplicaLag < 0 || cfg.ReplicaLag > backend.MaxTTL || cfg.ReplicaLag != 0 &&
		cfg.MaxTTL == 0:
		return refuse("replica_lag", cfg.ReplicaLag.String(),
			"must be positive, and goes with max_ttl")
	}
	if cfg.Dialect == DialectString {
		return script.Dialect(cfg.Prefix, cfg.Retention, cfg.RequestTimeout)
	}
	// safeguard: tombstone-in-flight
	l, err := script.NewLayout(cfg.Prefix, cfg.Retention, cfg.RequestTimeout)
	if err == nil && cfg.MaxTTL != 0 {
		l = l.Guarded(cfg.MaxTTL, cfg.ReplicaLag)
	}
	return l, err
}

// RefuseCluster returns a *[backend.InvalidError] if cfg asks for what a cluster cannot have.
func (cfg *Config) RefuseCluster() error {
	switch {
	case cfg.MaxTTL != 0:
		return &backend.InvalidError{
			Field: "max_ttl", Value: cfg.MaxTTL.String(),
			Reason: "cannot be had with a cluster: its locks and the mark of a server are in " +
				"different slots",
		}
	case cfg.Replicas != 0:
		return &backend.InvalidError{
			Field: "replicas", Value: strconv.Itoa(cfg.Replicas),
			Reason: "cannot be had with a cluster: its clients do not say on which " +
				"connection they wait",
		}
	}
	return nil
}

// capabilities are all that a server has, and of the dialect what its locks can do. name is the
// backend's plain scheme.
func (cfg *Config) capabilities(name string) backend.Capabilities {
	caps := backend.Capabilities{
		Name: name + "?dialect=" + cfg.Dialect, Fencing: true, Watch: true, Inspect: true,
		Observe: true, MinToken: true, MinTTL: script.MinTTL, MaxTTL: cfg.MaxTTL,
	}
	if cfg.Dialect == "" {
		caps.Name = name
		caps.Shared, caps.Permit, caps.Weight = true, true, true
		caps.Queue, caps.Reentrant = true, true
		caps.State, caps.NotBefore, caps.TookOver = true, true, true
	}
	return caps
}
