package config

import (
	"slices"
	"strings"
)

// didYouMean returns "; did you mean X?" for the candidate that name is most likely a slip of, or
// nothing.
func didYouMean(name string, candidates []string) string {
	if best := nearest(name, candidates); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// nearest returns the candidate that is a third of its letters, at most two, away from name; empty
// if there is none. Case, dots, hyphens and underscores do not count, so that maxHold finds
// max_hold.
func nearest(name string, candidates []string) string {
	name = letters(name)
	for most := range 3 {
		for _, c := range candidates {
			if plain := letters(c); most <= len(plain)/3 && within(most, name, plain) {
				return c
			}
		}
	}
	return ""
}

var plainLetters = strings.NewReplacer("_", "", "-", "", ".", "")

// letters is s as it is compared.
func letters(s string) string { return plainLetters.Replace(strings.ToLower(s)) }

// within reports whether at most n letters have to be added, dropped, replaced or swapped with
// their neighbour to turn a into b.
func within(n int, a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case a == "" || b == "":
		return len(a)+len(b) <= n
	case n == 0:
		return false
	case len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] && within(n-1, a[2:], b[2:]):
		return true
	}
	return within(n-1, a[1:], b[1:]) || within(n-1, a[1:], b) || within(n-1, a, b[1:])
}

// suggestKey is what the user of an unknown key probably meant: a key beside it that is spelled
// like it, or one of the same name elsewhere.
func suggestKey(prefix, name string) string {
	var beside []string
	for _, fd := range fields {
		if rest, ok := strings.CutPrefix(fd.key, prefix); ok {
			first, _, _ := strings.Cut(rest, ".")
			beside = append(beside, prefix+first)
		}
	}
	if hint := didYouMean(prefix+name, beside); hint != "" {
		return hint
	}
	i := slices.IndexFunc(fields, func(fd field) bool {
		return letters(fd.key) == letters(name) ||
			letters(fd.key[strings.LastIndex(fd.key, ".")+1:]) == letters(name)
	})
	if i < 0 {
		return ""
	}
	if section, leaf, nested := strings.Cut(fields[i].key, "."); nested {
		return "; did you mean " + leaf + " under " + section + "?"
	}
	return "; did you mean " + fields[i].key + ", which is not under " +
		strings.TrimSuffix(prefix, ".") + "?"
}
