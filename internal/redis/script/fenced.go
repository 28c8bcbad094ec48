package script

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

var fenced = load("fenced")

// Fenced returns the script that runs source, a Lua script with its own KEYS and ARGV, in the step
// that proves a token; see fenced.lua.
func Fenced(source string) Script {
	return newScript("local function apply(KEYS, ARGV)\n" + source + "\nend\n" + fenced.Source())
}

// Fenced returns the request of a [Fenced] script, for which keys and args are those of source.
func (l Layout) Fenced(key string, token uint64, source string, keys, args []string) Request {
	of := l.FencedKeys(key)
	first := strconv.Itoa(len(of) + 1) // of the keys of source
	return Request{
		Fenced(source), append(of, keys...), append([]string{strconv.FormatUint(token, 10), first},
			args...),
	}
}

// FencedKeys returns the keys that a [Fenced] script has before those of its source.
func (l Layout) FencedKeys(key string) []string {
	k := l.Key(key)
	if l.isDialect() {
		return []string{k, l.fenceKey(k), sideKey(k)}
	}
	return []string{k, l.fenceKey(k)}
}

// fenceKey is that of the mark of fenced.lua, in the slot of the lock whose key is k. No lock has
// it, as it does not end in a brace, and in the string dialect as it ends as side keys do.
//
// In the string dialect the locks k and {k} have one mark. It only ever refuses: who holds one of
// them is told that a later hold was here, if the token of the other is above its own. Another name
// would let more in where programs with either name share a grant.
func (l Layout) fenceKey(k string) string {
	switch {
	case !l.isDialect():
		return k + ":fence"
	case tagged(k):
		return k + ":fence" + sideSuffix
	}
	return "{" + k + "}:fence" + sideSuffix
}

// DecodeFenced reads the reply to a [Fenced] script, and returns that of its source; nil stands for
// no value. The error is [backend.ErrLost] if the token is not that of the present hold: nothing
// ran.
func DecodeFenced(reply any, token uint64) (any, error) {
	r, code := open(reply)
	switch {
	case code == codeOK && len(r) == 1:
		return nil, nil
	case code == codeOK && len(r) == 2:
		return r[1], nil
	case code == codeLost && len(r) == 2:
		if mark, ok := r[1].(int64); ok && uint64(mark) > token {
			return nil, fmt.Errorf("%w: a later hold was here, with token %d", backend.ErrLost,
				mark)
		}
		return nil, fmt.Errorf("%w: the hold with token %d was released, or another holds",
			backend.ErrLost, token)
	}
	return nil, no(r, code, reply)
}

// HashTag is what decides a key's slot in a cluster: what is between its first opening brace and
// the next closing one, or all of it.
func HashTag(k string) string {
	if !tagged(k) {
		return k
	}
	_, k, _ = strings.Cut(k, "{")
	k, _, _ = strings.Cut(k, "}")
	return k
}
