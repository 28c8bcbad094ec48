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
func nearest(name string, candidates []string) (best string) {
	const longest = 64 // no key is longer, and the work is quadratic
	if len(name) > longest {
		return ""
	}
	name = letters(name)
	least := 3
	for _, c := range candidates {
		plain := letters(c)
		if d := distance(name, plain); d < least && d <= len(plain)/3 {
			best, least = c, d
		}
	}
	return best
}

var plainLetters = strings.NewReplacer("_", "", "-", "", ".", "")

func letters(s string) string { return plainLetters.Replace(strings.ToLower(s)) }

// distance is how many letters have to be added, dropped, replaced or swapped with their neighbour
// to turn a into b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// suggestKey is what the user of an unknown key probably meant: a key beside it that is spelled
// like it, or one of the same name elsewhere.
func suggestKey(prefix, name string) string {
	var beside []string
	for _, f := range fields {
		if rest, ok := strings.CutPrefix(f.key, prefix); ok {
			first, _, _ := strings.Cut(rest, ".")
			beside = append(beside, prefix+first)
		}
	}
	if hint := didYouMean(prefix+name, beside); hint != "" {
		return hint
	}
	i := slices.IndexFunc(fields, func(f field) bool {
		return letters(f.key) == letters(name) || letters(f.key[strings.LastIndex(f.key, ".")+1:]) == letters(name)
	})
	if i < 0 {
		return ""
	}
	if section, leaf, nested := strings.Cut(fields[i].key, "."); nested {
		return "; did you mean " + leaf + " under " + section + "?"
	}
	return "; did you mean " + fields[i].key + ", which is not under " + strings.TrimSuffix(prefix, ".") + "?"
}
