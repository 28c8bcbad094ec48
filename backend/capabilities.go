package backend

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Capabilities says what a backend can do soundly. They are data, so that a wrapper forwards them
// and a program can require them when it starts, not when the first lock is taken. The conformance
// suite checks each one both ways.
type Capabilities struct {
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
	MinToken  bool // Claim.MinToken; it implies Fencing
	Loss      bool // Watch of a claim that holds signals soon after the hold was taken away; else only renewals tell

	MinTTL time.Duration // the shortest lease it accepts
	MaxTTL time.Duration // the longest, where that is less than [MaxTTL]; 0 if it is not
}

// Missing returns nil if c has all that need asks for, else an error that names what is missing and
// wraps [errors.ErrUnsupported]. A need with a MinTTL asks for leases that short.
func (c Capabilities) Missing(need Capabilities) error {
	if need == (Capabilities{}) || c.Queue && need == (Capabilities{Queue: true}) { // quickly: so it is for nearly every claim
		return nil
	}
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
		{"MinToken", c.MinToken, need.MinToken},
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
	return fmt.Errorf("backend lacks %s: %w", strings.Join(missing, ", "), errors.ErrUnsupported)
}
