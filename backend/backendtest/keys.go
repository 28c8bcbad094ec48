package backendtest

import (
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

var keyRules = []rule{
	{
		name: "keys/any-text", run: anyText,
		why: "A key is any UTF-8: users' names, paths, JSON. Separators, wildcards, braces and " +
			"control characters must not" +
			" reach into the store's own syntax (Redisson 2.11.0: names with a colon could not " +
			"be unlocked).",
	},
	{
		name: "keys/distinct", run: distinctKeys,
		why: "Bytes are identity. Keys that differ in case, in a space, in Unicode form or in " +
			"how they would be escaped are" +
			" different locks; a fold of any kind makes strangers wait for each other.",
	},
	{
		name: "keys/nested", run: nestedKeys,
		why: "jobs does not wait for jobs/1. (In etcd's concurrency package and in Curator it " +
			"does: etcd website#710, curator#564.)",
	},
	{
		name: "keys/odd-owners", run: oddOwners,
		why: "A re-entrant owner's name is the user's: it may hold whatever separates the " +
			"fields of a record.",
	},
}

// oddNames are parts of keys that have broken somebody's encoding.
var oddNames = []string{
	"plain", "with space", " ", "\t", "\x00", "a\x00b", "\r\n", "line\nbreak", "\x1b[31m", "\x7f",
	"{", "}", "{}", "{a}", "}{", "{{tag}}", "a{b}c",
	"*", "?", "[a-z]", "h\\*llo", "\\", "\\\\", "a\\b", "'", "\"", "`", "$(x)", ";", "&", "|", "<>",
	"%", "%25", "%00", "%7E", "%zz", "~", "~~", "a~b", ":", "a:b:c", "::", "/", "//", "a/b/",
	"../..", ".", "#", "?q=1&b",
	"🐉汉字\b", "é", "e\u0301", "İi", "ß", "\u200b", "\ufeff", "\U0010ffff", "null", "nil", "0", "-1",
	"NaN",
	"holdfast", "probe", ":free", "{probe}",
}

// covers: I3, I4, I5, X13
func anyText(e *env) {
	a, b := e.open(), e.open()
	names := append([]string{strings.Repeat("n", 900), strings.Repeat("{", 900)}, oddNames...)
	for _, name := range names {
		for _, key := range []string{e.key(name), e.key(name + "-end")} {
			c := e.claim(key)
			e.acquire(a, c)
			e.held(b, e.claim(key))
			e.renewed(a, c)
			e.release(a, c)
		}
	}
	e.wakesAny(a, b)
}

// wakesAny checks that keys of any text are watched, too: channels have a syntax of their own.
func (e *env) wakesAny(a, b backend.Backend) {
	e.Helper()
	if !e.caps.Watch {
		return
	}
	for _, name := range []string{"*", "{}", "\x00\n", "a:b", "汉字", "[a-z]", "\\"} {
		key := e.key(name)
		wake, cancel := e.watch(b, e.claim(key))
		e.cycleBefore(b, a, key)
		if !e.woken(wake, patience) {
			e.Errorf("a release of %s did not signal", short(key))
		}
		cancel()
	}
}

// covers: I6, I7, I3, X13
func distinctKeys(e *env) {
	a, b := e.open(), e.open()
	names := append([]string{
		"Name", "name", "NAME", "name ", " name", "name\x00", "name\n", "a/b", "a%2Fb", "a%252Fb",
		"a\\/b", "x~y", "x%7Ey", "x%7ey",
		"\u00e9", "e\u0301", "I", "ı", "{n}", "n", "%7Bn%7D",
	}, oddNames...)
	var holds []backend.Claim
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		c := e.claim(e.key(name))
		if _, err := a.TryAcquire(e.ctx, c); err != nil {
			e.Fatalf("TryAcquire(%s) = %v, while only other keys are held", short(c.Key), err)
		}
		e.forget(a, c)
		holds = append(holds, c)
	}
	for _, c := range holds {
		e.held(b, e.claim(c.Key))
	}
	for _, c := range holds {
		e.release(b, c)
	}
}

// covers: X13
func nestedKeys(e *env) {
	a, b := e.open(), e.open()
	names := []string{
		"jobs/1", "jobs", "jobs/", "jobs/1/2", "job", "jobs1", "jobs:1", "jobs~1",
		"jobs\x00",
	}
	for _, outer := range names {
		c := e.claim(e.key(outer))
		e.acquire(a, c)
		for _, other := range names {
			if other != outer {
				e.free(b, e.key(other))
			}
		}
		if e.caps.Watch && outer == "jobs" {
			e.cycle(b, e.key("jobs/1"))
		}
		e.release(a, c)
	}
}

// covers: I4, A12
func oddOwners(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	for i, odd := range []string{
		"a b", "a;b", "a b;9999999999999 c;", "%20", "\x00", "\n", "汉字",
		"", "@", ",", "|", "o'\"",
	} {
		c := e.claim(key)
		c.Owner = odd + c.Owner
		if i%2 == 0 {
			c.Owner += odd
		}
		e.acquire(a, c)
		e.held(b, e.claim(key))
		if e.caps.Inspect {
			if state, err := b.Inspect(e.ctx, key); err != nil || len(state.Holders) != 1 ||
				state.Holders[0].Owner != c.Owner {
				e.Errorf("Inspect = %+v, %v; want the holder %q", state, err, c.Owner)
			}
		}
		e.release(a, c)
		e.tombstoned(b, c)
		e.free(b, key)
	}
}
