package main

import "slices"

// mutants are the defects. To add one: a short name of what goes wrong, the package, a pattern that
// matches once, and the tests that guard the line. go run ./internal/mutants -run 'name' tries it.
func mutants() []mutant {
	return slices.Concat(contract, memory, judge, lockerMutants, redisMutants, redlockMutants, etcdMutants, commandMutants, fenceMutants, fileMutants)
}

// The contract that all backends share.
var contract = []mutant{
	{
		Name: "an unknown error is a no", Dir: "backend", Find: `return Unknown`, Put: "return No",
		Test: "./backend Answer",
	},
	{
		Name: "a store that did not take the request may have executed it", Dir: "backend",
		Find: `errors.Is\(err, ErrUnavailable\), `, Put: "", Test: "./backend Answer",
	},
	{
		Name: "held is a refusal for good", Dir: "backend", Find: `\{ErrInvalid, ErrForeign,`, Put: "{ErrHeld, ErrInvalid, ErrForeign,",
		Test: "./backend Refused|Answer",
	},
	{
		Name: "two namespaces meet", Dir: "backend", Find: `return __\.Replace\(namespace\) \+ "~" \+ key`,
		Put: `return namespace + "~" + key`, Test: "./backend Namespaced",
	},
	{
		Name: "a key without a namespace meets one with", Dir: "backend", Find: `return __\.Replace\(key\)`, Put: "return key",
		Test: "./backend Namespaced",
	},
	{
		Name: "an escaped tilde meets itself", Dir: "backend", Find: `NewReplacer\("%", "%25", `, Put: "NewReplacer(",
		Test: "./backend Namespaced",
	},
	{
		Name: "a minimum token may run away from the clock", Dir: "backend", Find: `now\.Add\(ttl / 4\)`, Put: "now.Add(4000 * ttl)",
		Test: "./backend MinTokenLimit",
	},
	{
		Name: "all holds of a re-entrant owner are one", Dir: "backend", Find: `return c\.Hold`, Put: "return c.Owner",
		Test: "./backend/membackend Conformance/",
	},
	{
		Name: "a backend is asked for weights that it does not know", Dir: "backend", Find: `Weight: c\.Weight > 1, `, Put: "",
		Test: "./backend ValidateNeeds",
	},
	{
		Name: "a claim weighs more than it may ever hold", Dir: "backend", Find: `case c\.Weight > c\.Limit:`, Put: "case false:",
		Test: "./backend ValidateRefuses",
	},
	{
		Name: "owners are predictable", Dir: "backend", Find: `_, _ = (__)\.Read\(b\[:\]\)`, Put: "_ = $1.Reader",
		Test: "./backend NewOwner",
	},

	// What all backends share for waiting.
	{
		Name: "a hand-over is dropped behind an older signal", Dir: "waiting",
		Find: `select \{\s+case <-(__):\s+default:\s+\}\s+__ <- m`, Put: "select {\ncase $1 <- m:\ndefault:\n}",
		Test: "./waiting Deliver|Hub",
	},
	{
		Name: "only the last watcher hears", Dir: "waiting", Find: `(func signal\[.*\n\s*for w := last; w != nil; w = )w\.older`, Put: "${1}nil",
		Test: "./waiting Hub",
	},
	{
		Name: "a closed hub leaves its watchers asleep", Dir: "waiting", Find: `close\(w\.wake\)(\s+\}\s+\}\s+h\.topics = nil)`, Put: "$1",
		Test: "./waiting Hub|Close",
	},
}

// The reference store, by the conformance suite.
var memory = []mutant{
	{
		Name: "mem: anybody may release", Dir: "internal/memstore",
		Find: `(DeleteFunc\(l\.holds, func)\(h Hold\)( bool \{ return )h\.ID == id`, Put: "$1(Hold)${2}true",
		Test: "./backend/membackend Conformance/release",
	},
	{
		Name: "mem: no tombstone", Dir: "internal/memstore", Find: `if !c\.NoneInFlight`, Put: "if false",
		Test: "./backend/membackend Conformance/tombstone",
	},
	{
		Name: "mem: a tombstone is gone too early", Dir: "internal/memstore", Find: `now\.Add\(2\*min\(max\(c\.TTL, 0\), __\) \+ late\)`,
		Put: "now.Add(time.Millisecond)", Test: "./backend/membackend Conformance/tombstone",
	},
	{
		Name: "mem: a lease ends early", Dir: "internal/memstore", Find: `return !h\.Expires\.After\(now\)`,
		Put: "return !h.Expires.After(now.Add(time.Millisecond))", Test: "./backend/membackend Conformance/expiry",
	},
	{
		Name: "mem: a repeat is a new grant", Dir: "internal/memstore", Find: `if (h := l\.holdOf\(c\.ID\(\)\)); h != nil \{`, Put: "if $1; h != nil && false {",
		Test: "./backend/membackend Conformance/repeat",
	},
	{
		Name: "mem: tokens come from the clock alone", Dir: "internal/memstore", Find: `max\(s\.token\+1, `, Put: "max(",
		Test: "./backend/membackend Conformance/token",
	},
	{
		Name: "mem: tokens come from the counter alone", Dir: "internal/memstore", Find: `uint64\(now\.UnixMicro\(\)\), `, Put: "",
		Test: "./internal/memstore ./backend/membackend .",
	},
	{
		Name: "mem: reserved tokens are given away", Dir: "internal/memstore", Find: `(s\.token = h\.Token) \+ uint64\(h\.Reserved\) - 1`, Put: "$1",
		Test: "./backend/membackend Conformance/",
	},
	{
		Name: "mem: who does not wait overtakes", Dir: "internal/memstore", Find: `len\(l\.line\) == 0 && l\.fits\(c\)`, Put: "l.fits(c)",
		Test: "./backend/membackend Conformance/",
	},
	{
		Name: "mem: a reader beside a writer", Dir: "internal/memstore", Find: `case c\.Mode != l\.holds\[0\]\.Mode:`, Put: "case c.Mode == backend.Exclusive:",
		Test: "./backend/membackend Conformance/",
	},
	{
		Name: "mem: who holds counts once", Dir: "internal/memstore", Find: `sum \+= max\(l\.holds\[i\]\.Weight, 1\)`, Put: "_ = i\nsum++",
		Test: "./backend/membackend Conformance/permit",
	},
	{
		Name: "mem: who comes counts once", Dir: "internal/memstore", Find: `max\(c\.Weight, 1\) <= c\.Limit-l\.weight\(\)`,
		Put: "l.weight() < c.Limit", Test: "./backend/membackend Conformance/permit",
	},
	{
		Name: "mem: a store that forgot grants at once", Dir: "internal/memstore", Find: `if !now\.Before\(s\.opens\)`, Put: "if true",
		Test: "./internal/memstore ./backend/membackend Quarantine",
	},
}

// What judges histories: a judge that sees nothing lets every other defect pass.
var judge = []mutant{
	{
		Name: "history: two holders are not seen", Dir: "internal/history", Find: `case used > capacity:`, Put: "case used > capacity+1:",
		Test: "./internal/history Check",
	},
	{
		Name: "history: who has ended goes on counting", Dir: "internal/history", Find: `used -= ends\[0\]\.weight\(\)`, Put: "used -= 0",
		Test: "./internal/history Check",
	},
	{
		Name: "history: falling tokens are not seen", Dir: "internal/history", Find: `h\.Token > max\(e\.Token, above\.Token\)`, Put: "false",
		Test: "./internal/history Check",
	},
	{
		Name: "history: a token granted twice is not seen", Dir: "internal/history", Find: `if a, ok := (__\[e\.Token\]); ok \{`, Put: "if a, ok := $1; ok && false {",
		Test: "./internal/history Check",
	},
}
