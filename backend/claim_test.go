package backend_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var all = backend.Capabilities{
	Shared: true, Permit: true, Weight: true, Fencing: true, Queue: true, Watch: true,
	Reentrant: true, State: true, Inspect: true,
	MinToken: true, MinTTL: 10 * time.Millisecond,
}

func valid() backend.Claim { return backend.Claim{Key: "k", Owner: "o", TTL: time.Second} }

// covers: I1, I2, I5, I8, A8, A12
func TestValidateRefuses(t *testing.T) {
	for _, c := range []struct {
		field string
		spoil func(*backend.Claim)
	}{
		{"key", func(c *backend.Claim) { c.Key = "" }},
		{"key", func(c *backend.Claim) { c.Key = strings.Repeat("k", backend.MaxKey+1) }},
		{"key", func(c *backend.Claim) { c.Key = "a\xffb" }},
		{"owner", func(c *backend.Claim) { c.Owner = "" }},
		{"owner", func(c *backend.Claim) { c.Owner = strings.Repeat("o", backend.MaxOwner+1) }},
		{"ttl", func(c *backend.Claim) { c.TTL = 0 }},
		{"ttl", func(c *backend.Claim) { c.TTL = -1 }},
		{"ttl", func(c *backend.Claim) { c.TTL = 1 }},
		{"ttl", func(c *backend.Claim) { c.TTL = all.MinTTL - 1 }},
		{"ttl", func(c *backend.Claim) { c.TTL = backend.MaxTTL + 1 }},
		{"ttl", func(c *backend.Claim) { c.TTL = math.MaxInt64 }},
		{"ttl", func(c *backend.Claim) { c.TTL = math.MinInt64 }},
		{"mode", func(c *backend.Claim) { c.Mode = backend.Permit + 1 }},
		{"limit", func(c *backend.Claim) { c.Mode = backend.Permit }},
		{"limit", func(c *backend.Claim) { c.Mode, c.Limit = backend.Permit, -1 }},
		{"limit", func(c *backend.Claim) { c.Limit = 1 }},
		{"weight", func(c *backend.Claim) { c.Weight = 1 }},
		{"weight", func(c *backend.Claim) { c.Weight, c.Mode = 2, backend.Shared }},
		{"weight", func(c *backend.Claim) { c.Weight, c.Mode, c.Limit = -1, backend.Permit, 3 }},
		{"weight", func(c *backend.Claim) { c.Weight, c.Mode, c.Limit = 4, backend.Permit, 3 }},
		{"weight", func(c *backend.Claim) {
			c.Weight, c.Mode, c.Limit = math.MaxInt, backend.Permit, math.MaxInt32
		}},
		{"meta", func(c *backend.Claim) { c.Meta.Host = strings.Repeat("h", backend.MaxMeta+1) }},
		{"meta", func(c *backend.Claim) {
			c.Meta.Host, c.Meta.Note = strings.Repeat("h", backend.MaxMeta), "n"
		}},
		{"note", func(c *backend.Claim) { c.Meta.Note = strings.Repeat("x", backend.MaxNote+1) }},
		{"save", func(c *backend.Claim) { c.Save = make([]byte, backend.MaxState+1) }},
		{"waiter_ttl", func(c *backend.Claim) { c.Queue = true }},
		{"waiter_ttl", func(c *backend.Claim) { c.Queue, c.WaiterTTL = true, backend.MaxTTL+1 }},
		{"hold", func(c *backend.Claim) { c.Reentrant = true }},
		{"mode", func(c *backend.Claim) {
			c.Reentrant, c.Hold, c.Mode = true, "h", backend.Shared
		}},
		{"reserve", func(c *backend.Claim) { c.Reserve = -1 }},
		{"min_token", func(c *backend.Claim) { c.MinToken = backend.MaxMinToken + 1 }},
		{"min_token", func(c *backend.Claim) { c.MinToken = math.MaxUint64 }},
		{"reserve", func(c *backend.Claim) { c.Reserve = backend.MaxReserve + 1 }},
		{"reserve", func(c *backend.Claim) { c.Reserve, c.Mode = 2, backend.Shared }},
	} {
		claim := valid()
		c.spoil(&claim)
		err := claim.Validate(all)
		var bad *backend.InvalidError
		if !errors.As(err, &bad) || !errors.Is(err, backend.ErrInvalid) || bad.Field != c.field {
			t.Errorf("Validate(%+v) = %v, want an *InvalidError about %s", claim, err, c.field)
		} else if len(err.Error()) > 300 {
			t.Errorf("the text has %d bytes: %s", len(err.Error()), err)
		}
	}
}

// A release is refused for what it cannot do, and for nothing else: what is refused stays held.
func TestValidateRelease(t *testing.T) {
	c := backend.Claim{
		Key: "k", Owner: "o", Mode: 77, TTL: -1,
		Save: make([]byte, backend.MaxState),
	}
	if err := c.ValidateRelease(all); err != nil {
		t.Errorf("ValidateRelease = %v, want nil", err)
	}
	if err := c.ValidateRelease(backend.Capabilities{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("ValidateRelease without State = %v, want errors.ErrUnsupported", err)
	}
	var bad *backend.InvalidError
	c.Save = append(c.Save, 0)
	if err := c.ValidateRelease(all); !errors.As(err, &bad) || bad.Field != "save" {
		t.Errorf("ValidateRelease of a long state = %v", err)
	}
	c.Key, c.Save = "", nil
	if err := c.ValidateRelease(all); !errors.As(err, &bad) || bad.Field != "key" {
		t.Errorf("ValidateRelease without a key = %v", err)
	}
	c.Key = "k"
	for _, field := range []string{"owner", "hold"} {
		c.Reentrant = field == "hold"
		for _, name := range []string{"", strings.Repeat("o", backend.MaxOwner+1)} {
			c.Owner, c.Hold = name, name
			if err := c.ValidateRelease(all); !errors.As(err, &bad) || bad.Field != field {
				t.Errorf("ValidateRelease with a %s of %d bytes = %v", field, len(name), err)
			}
		}
	}
}

func TestValidateAccepts(t *testing.T) {
	for name, change := range map[string]func(*backend.Claim){
		"plain":         func(*backend.Claim) {},
		"longest key":   func(c *backend.Claim) { c.Key = strings.Repeat("k", backend.MaxKey) },
		"longest owner": func(c *backend.Claim) { c.Owner = strings.Repeat("o", backend.MaxOwner) },
		"shortest TTL":  func(c *backend.Claim) { c.TTL = all.MinTTL },
		"longest TTL":   func(c *backend.Claim) { c.TTL = backend.MaxTTL },
		"any bytes":     func(c *backend.Claim) { c.Key, c.Owner = "\x00 {}*\n汉", "\x00;" },
		"shared":        func(c *backend.Claim) { c.Mode = backend.Shared },
		"permit":        func(c *backend.Claim) { c.Mode, c.Limit = backend.Permit, math.MaxInt32 },
		"light permit": func(c *backend.Claim) {
			c.Mode, c.Limit, c.Weight = backend.Permit, 3, 1
		},
		"heavy permit": func(c *backend.Claim) { c.Mode, c.Limit, c.Weight = backend.Permit, 3, 3 },
		"queue":        func(c *backend.Claim) { c.Queue, c.WaiterTTL = true, 1 },
		"re-entrant":   func(c *backend.Claim) { c.Reentrant, c.Hold = true, "h" },
		"reserve":      func(c *backend.Claim) { c.Reserve = backend.MaxReserve },
		"min_token":    func(c *backend.Claim) { c.MinToken = backend.MaxMinToken },
		"state":        func(c *backend.Claim) { c.Load, c.Save = true, []byte{} },
	} {
		claim := valid()
		change(&claim)
		if err := claim.Validate(all); err != nil {
			t.Errorf("%s: Validate = %v", name, err)
		}
	}
}

func TestValidateNeedsCapabilities(t *testing.T) {
	for name, change := range map[string]func(*backend.Claim){
		"Shared":    func(c *backend.Claim) { c.Mode = backend.Shared },
		"Permit":    func(c *backend.Claim) { c.Mode, c.Limit = backend.Permit, 2 },
		"Weight":    func(c *backend.Claim) { c.Mode, c.Limit, c.Weight = backend.Permit, 2, 2 },
		"Queue":     func(c *backend.Claim) { c.Queue, c.WaiterTTL = true, time.Second },
		"Reentrant": func(c *backend.Claim) { c.Reentrant, c.Hold = true, "h" },
		"State":     func(c *backend.Claim) { c.Save = []byte{} },
	} {
		claim := valid()
		change(&claim)
		err := claim.Validate(backend.Capabilities{})
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("Validate = %v, want an error that is ErrUnsupported and names %s", err, name)
		}
	}
	if err := valid().Validate(backend.Capabilities{}); err != nil {
		t.Errorf("a plain claim needs a capability: %v", err)
	}
}

// covers: A12
func TestNewOwnerIsUnique(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				owner := backend.NewOwner()
				mu.Lock()
				if seen[owner] || len(owner) > backend.MaxOwner || len(owner) < 22 ||
					strings.ContainsAny(owner, " ;%\n{}") {
					t.Errorf("NewOwner = %q", owner)
				}
				seen[owner] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestClaimID(t *testing.T) {
	c := valid()
	if c.ID() != "o" {
		t.Errorf("ID = %q, want the owner", c.ID())
	}
	if c.Reentrant, c.Hold = true, "h"; c.ID() != "h" {
		t.Errorf("ID = %q, want the hold", c.ID())
	}
}

// Each claim is told what was said of its key, also behind a key of which nothing was said.
//
// covers: A2, C4
func TestTogetherAsksForEachKey(t *testing.T) {
	errSilence := errors.New("no answer")
	claims := []backend.Claim{{Key: "a"}, {Key: "silent"}, {Key: "a"}, {Key: "b"}}
	answers := []error{nil, nil, nil, nil}
	told := map[string][]error{"a": {nil, backend.ErrLost}, "b": {backend.ErrHeld}}
	backend.Together(claims, backend.ByKey(claims), answers,
		func(some []backend.Claim) ([]error, error) {
			said, ok := told[some[0].Key]
			if !ok {
				return nil, errSilence
			}
			return said, nil
		})
	if want := []error{nil, errSilence, backend.ErrLost, backend.ErrHeld}; !slices.Equal(answers,
		want) {
		t.Errorf("answers %v, want %v", answers, want)
	}
}

func TestModeString(t *testing.T) {
	for mode, want := range map[backend.Mode]string{
		backend.Exclusive: "exclusive", backend.Shared: "shared", backend.Permit: "permit",
		9: "Mode(9)",
	} {
		if mode.String() != want {
			t.Errorf("String = %q, want %q", mode, want)
		}
	}
}

// covers: I1, I2, B10
func FuzzValidateTTL(f *testing.F) {
	for _, d := range []int64{
		0, -1, 1, 1e6, 1e7, 1e9, math.MaxInt64, math.MinInt64,
		int64(backend.MaxTTL),
	} {
		f.Add(d, int64(time.Millisecond))
	}
	f.Fuzz(func(t *testing.T, ttl, least int64) {
		d, min := time.Duration(ttl), time.Duration(least)
		want := d > 0 && d >= min && d <= backend.MaxTTL
		if err := backend.ValidateTTL(d, min); (err == nil) != want {
			t.Errorf("ValidateTTL(%v, %v) = %v", d, min, err)
		}
	})
}

// Code and the conformance suite ask MinTokenLimit alike, so the suite does not tell when it is
// wrong.
func TestMinTokenLimit(t *testing.T) {
	now := time.UnixMicro(1_000_000)
	if got := backend.MinTokenLimit(now, 4*time.Second); got != 2_000_000 {
		t.Errorf("MinTokenLimit one second after 1970 with a TTL of four = %d, want 2000000", got)
	}
}
