package locker

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// DefaultTTL is Config.TTL where none is given. MinTTL is the shortest TTL that can be believed in
// at all, on any backend: the allowance for drift and clock granularity, and the time of a request
// and its answer, come off it.
const (
	DefaultTTL = 30 * time.Second
	MinTTL     = 10 * time.Millisecond
)

// Config adjusts a [Client]. The zero value is ready for use. Package locker/config reads one from
// a file.
type Config struct {
	// TTL is how long a crashed holder blocks others. A living one renews every third of it.
	// Default [DefaultTTL]. It must lie between the greater of [MinTTL] and the backend's own, and
	// the lesser of [backend.MaxTTL] and the backend's own.
	TTL time.Duration

	// MaxHold ends a hold that is older, with cause ErrMaxHold: it is renewed no more, and runs out
	// within a TTL unless its guard is unlocked before. Time that the machine sleeps counts, where
	// it is known. Zero: a hold lasts for as long as it is renewed.
	MaxHold time.Duration

	// ReleaseTimeout bounds Unlock, and the clean-up after a Lock that came to nothing, when the
	// store is silent; a request that is under way is waited for, up to the backend's request
	// timeout. Then the Client goes on behind the caller, and the lease runs out by itself.
	// Default: the TTL, at most 5s, or 30s for what only an Unlock can leave in the store, a
	// [Store]'s value or a job's mark ([Once], [OncePer]).
	ReleaseTimeout time.Duration

	// StoreTimeout is how long Lock waits for a store that gives no answer at all before it fails
	// with the store's error, counted from the call or the last answer, whichever is later. A held
	// lock is an answer: waiting for one is bounded by ctx alone. While other requests of the
	// Client are answered the store is busy rather than away, and Lock waits four times as long.
	// Default: the TTL, and at most 30s.
	StoreTimeout time.Duration

	// Namespace is put before every key, so that services sharing a store do not share locks by
	// accident. Two different pairs of namespace and key never meet, see [backend.Namespaced].
	Namespace string

	// Service names this program to those who wait for its locks. Default: OTEL_SERVICE_NAME of the
	// environment, else the executable's name.
	Service string

	// Classes are the kinds of locks that there are, for observers: patterns of keys as of
	// [path.Match], such as "order-*". A key is of the first that fits it, and [ClassOf] says what
	// the class is called. Keys are matched without the namespace, and a * matches no slash. A key
	// that none fits has no class: keys may hold the names of people, and there may be any number
	// of them.
	Classes []string

	// Wait says how Lock waits.
	Wait waiting.Config

	// BreakDeadlocks has one Lock of a deadlock fail with [ErrDeadlock]: of those who wait for each
	// other the one whose caller's hold, that another waits for, has the greatest token, if its
	// Client has this set; so two never both fail. Without it deadlocks are logged, and told to the
	// Observer.
	//
	// Deadlocks are seen among those who give Lock the context of the guard that they hold, or one
	// derived from it, and wait for exclusive or shared locks. (A shared Lock that waits behind a
	// writer for readers is not followed.) In one process they are found at once; across processes,
	// on stores with a queue, when those who wait have done so for a second or more, see
	// docs/tracing.md. Whoever uses the context in several goroutines and unlocks in one while
	// another waits must know that such a wait counts as the holder's.
	BreakDeadlocks bool

	// Require makes New fail with errors.ErrUnsupported unless the backend has all of these.
	Require backend.Capabilities

	Observer Observer // told what happens; nil for nobody
	// lost and leaked locks, and deadlocks, at level Warn; default slog.Default()
	Logger *slog.Logger
}

// withDefaults returns cfg complete, or a *[backend.InvalidError] that names the first bad field.
func (cfg Config) withDefaults(caps backend.Capabilities) (Config, error) {
	for _, f := range []struct {
		name  string
		field *time.Duration
	}{
		{"MaxHold", &cfg.MaxHold},
		{"ReleaseTimeout", &cfg.ReleaseTimeout},
		{"StoreTimeout", &cfg.StoreTimeout},
	} {
		if *f.field < 0 {
			return cfg, &backend.InvalidError{
				Field: f.name, Value: f.field.String(),
				Reason: "is negative",
			}
		}
	}
	if cfg.TTL == 0 {
		cfg.TTL = max(DefaultTTL, caps.MinTTL)
		if caps.MaxTTL > 0 {
			cfg.TTL = min(cfg.TTL, caps.MaxTTL)
		}
	}
	if err := validateTTL(cfg.TTL, caps); err != nil {
		return cfg, err
	}
	if cfg.Namespace != "" {
		if err := backend.ValidateKey(backend.Namespaced(cfg.Namespace, "k")); err != nil {
			return cfg, fmt.Errorf("namespace: %w", err)
		}
	}
	cfg.Classes = slices.Clone(cfg.Classes)
	for _, pattern := range cfg.Classes {
		if _, err := ClassOf(pattern); err != nil {
			return cfg, err
		}
	}
	cfg.Service = cmp.Or(cfg.Service, os.Getenv("OTEL_SERVICE_NAME"), filepath.Base(os.Args[0]))
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	var err error
	if cfg.Wait, err = cfg.Wait.WithDefaults(); err != nil {
		return cfg, &backend.InvalidError{Field: "Wait", Reason: err.Error()}
	}
	return cfg, caps.Missing(cfg.needs())
}

// validateTTL refuses a TTL that the backend cannot keep, or nobody.
func validateTTL(ttl time.Duration, caps backend.Capabilities) error {
	if caps.MaxTTL > 0 && ttl > caps.MaxTTL {
		return &backend.InvalidError{
			Field: "ttl", Value: ttl.String(),
			Reason: "is over the backend's longest, " + caps.MaxTTL.String(),
		}
	}
	return backend.ValidateTTL(ttl, max(caps.MinTTL, MinTTL))
}

// needs is what the backend must be able to do: what the program requires, and what the wait mode
// implies.
func (cfg Config) needs() backend.Capabilities {
	need, mode := cfg.Require, modeNeeds(cfg.Wait.Mode)
	need.Queue = need.Queue || mode.Queue
	need.Watch = need.Watch || mode.Watch
	return need
}

// modeNeeds is what a backend must be able to do for a mode.
func modeNeeds(m waiting.Mode) backend.Capabilities {
	queue := m == waiting.Handoff
	return backend.Capabilities{Queue: queue, Watch: queue || m == waiting.Notify}
}

var hostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
})

// meta is what every claim of a client says of its claimant.
func (cfg Config) meta() backend.Meta {
	return backend.Meta{Service: cfg.Service, Host: hostname(), PID: os.Getpid()}
}
