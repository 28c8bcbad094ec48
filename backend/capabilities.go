package backend

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Capabilities says what a backend can do soundly. They are data, so that a wrapper forwards them
// and a program can require them when it starts, not when the first lock is taken. The conformance
// suite checks each one both ways.
type Capabilities struct {
	// Name is what errors call the backend: the scheme of its URLs, and what else decides, such as
	// redis?dialect=string.
	Name string

	Shared    bool // Mode Shared
	Permit    bool // Mode Permit
	Weight    bool // Claim.Weight above 1
	Fencing   bool // Grant.Token rises strictly from grant to grant of one key
	Queue     bool // Claim.Queue: first come, first served
	Watch     bool // Watch signals
	Reentrant bool // Claim.Reentrant
	State     bool // Claim.Load, Claim.Save and Saved
	NotBefore bool // Claim.NotBefore
	Inspect   bool // Inspect
	// Observe tells of every hold that is not too short; else of those that Inspect happens to see
	Observe  bool
	MinToken bool // Claim.MinToken; it implies Fencing
	// Grant.TookOver, for a claim that asks while the store still knows of the hold before
	TookOver bool
	// Watch of a claim that holds signals soon after the hold was taken away; else only renewals
	// tell
	Loss bool

	MinTTL time.Duration // the shortest lease it accepts
	MaxTTL time.Duration // the longest, where that is less than [MaxTTL]; 0 if it is not
}

// Missing returns nil if c has all that need asks for, else an error that names c and what is
// missing, and is [errors.ErrUnsupported]. A need with a MinTTL asks for leases that short.
func (c Capabilities) Missing(need Capabilities) error {
	var missing []string
	for _, f := range []struct {
		name      string
		has, want bool
	}{
		{"Shared", c.Shared, need.Shared},
		{"Permit", c.Permit, need.Permit},
		{"Weight", c.Weight, need.Weight},
		{"Fencing", c.Fencing, need.Fencing},
		{"Queue", c.Queue, need.Queue},
		{"Watch", c.Watch, need.Watch},
		{"Reentrant", c.Reentrant, need.Reentrant},
		{"State", c.State, need.State},
		{"NotBefore", c.NotBefore, need.NotBefore},
		{"Inspect", c.Inspect, need.Inspect},
		{"Observe", c.Observe, need.Observe},
		{"MinToken", c.MinToken, need.MinToken},
		{"TookOver", c.TookOver, need.TookOver},
		{"Loss", c.Loss, need.Loss},
	} {
		if f.want && !f.has {
			missing = append(missing, f.name)
		}
	}
	if need.MinTTL > 0 && c.MinTTL > need.MinTTL {
		missing = append(missing, fmt.Sprintf("MinTTL %v (has %v)", need.MinTTL, c.MinTTL))
	}
	if missing == nil {
		return nil
	}
	return &missingError{c.Name, missing}
}

// A missingError is [errors.ErrUnsupported] with what a backend does not have.
type missingError struct {
	name    string
	missing []string
}

func (e *missingError) Error() string {
	verb := " is not supported"
	if len(e.missing) > 1 {
		verb = " are not supported"
	}
	return cmp.Or(e.name, "backend") + ": " + strings.Join(e.missing, ", ") + verb
}

func (e *missingError) Unwrap() error { return errors.ErrUnsupported }
