package script

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

var fenced = load("fenced").Source

// Fenced returns the script that runs source, a Lua script with its own KEYS and ARGV, in the step
// that proves a token; see fenced.lua.
func Fenced(source string) Script {
	return newScript("local function apply(KEYS, ARGV)\n" + source + "\nend\n" + fenced)
}

// FencedKeys returns the keys that a [Fenced] script has before those of its source.
func (l Layout) FencedKeys(key string) []string {
	if l.dialect {
		return []string{l.Key(key), l.fenceKey(key), l.sideKey(key)}
	}
	return []string{l.Key(key), l.fenceKey(key)}
}

// fenceKey is that of the mark of fenced.lua, in the slot of the lock. No lock has it, as it does
// not end in a brace, and in the string dialect as it ends as side keys do.
func (l Layout) fenceKey(key string) string {
	k := l.Key(key)
	switch {
	case !l.dialect:
		return k + ":fence"
	case tagged(k):
		return k + ":fence" + sideSuffix
	}
	return "{" + k + "}:fence" + sideSuffix
}

// Fenced returns the arguments that a [Fenced] script has before those of its source.
func (l Layout) Fenced(token uint64) []string {
	ours := "1"
	if l.dialect {
		ours = "2"
	}
	return []string{strconv.FormatUint(token, 10), ours}
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
			return nil, fmt.Errorf("%w: a later hold was here, with token %d", backend.ErrLost, mark)
		}
		return nil, fmt.Errorf("%w: the hold with token %d was released, or another holds", backend.ErrLost, token)
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
