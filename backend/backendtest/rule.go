package backendtest

import (
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/backend"
)

// A rule is one case: what a backend owes, and why.
type rule struct {
	name  string
	why   string // printed when it fails: what breaking it does to people, and where that happened
	run   func(*env)
	needs backend.Capabilities // what the backend must claim for the rule to apply
	hook  func(Harness) bool   // what the harness must have; nil is nothing
	alone bool                 // needs the machine or the store to itself
	slow  bool                 // many rounds: left out where each mutant is tried
	// depends on the client's code and not on the server: see Harness.Brief
	once bool
}

// rules returns the whole suite. In bubbles, where they cost little, more seeds are tried.
func rules(bubble bool) []rule {
	return slices.Concat(
		exclusiveRules, repeatRules, releaseRules, releaseAllRules, tryAllRules, tombstoneRules,
		renewRules, tokenRules, minTokenRules, expiryRules, tookOverRules, watchRules, lossRules,
		once(inputRules), once(keyRules), contextRules, inspectRules, closeRules,
		once(capabilityRules), toolRules, observeRules, modeRules, stateRules, earlyRules,
		queueRules, handoffRules,
		heartbeatRules, fairRules, readerRules, permitRules, ownerRules, mixedRules,
		once(mutexRules()), foreignRules,
		once(lockerRules), once(guardRules), once(scopedRules), storeRules, adoptRules,
		leftoverRules, contentionRules, faultRules, stormRules(bubble),
	)
}

// once marks rules that tell nothing new on a second server.
func once(rules []rule) []rule {
	marked := slices.Clone(rules)
	for i := range marked {
		marked[i].once = true
	}
	return marked
}

func hasForeign(h Harness) bool { return h.PutForeign != nil }
func hasDrop(h Harness) bool    { return h.Drop != nil }
func hasRestart(h Harness) bool { return h.Restart != nil }

// Often-used needs.
var (
	fencing = backend.Capabilities{Fencing: true}
	inspect = backend.Capabilities{Inspect: true}
	watch   = backend.Capabilities{Watch: true}
)

// short is a text for messages: keys may be long and odd.
func short(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%+q… (%d bytes)", s[:40], len(s))
	}
	return fmt.Sprintf("%+q", s)
}
