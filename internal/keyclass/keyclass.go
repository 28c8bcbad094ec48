// Package keyclass guesses what kind of lock a key is, for whoever counts locks by kind.
package keyclass

import "strings"

// Of returns what stands before the first separator (one of : / | # = @ ~ .) or digit, without a
// trailing - or _.
func Of(key string) string {
	if i := strings.IndexAny(key, ":/|#=@~.0123456789"); i >= 0 {
		key = key[:i]
	}
	return strings.TrimRight(key, "-_")
}
