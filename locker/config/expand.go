package config

import (
	"regexp"
	"strings"
)

// variableName is what may stand in ${}: what shells take for a name.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME}, ${NAME:-default} and $$ in a value, and returns the names of the
// variables that it asked for; with an error, that of the one which is not set. Any other dollar
// stays, as passwords have them. What a variable holds is not expanded again, and is never parsed
// as YAML: text was taken from a parsed scalar.
func expand(text string, lookup func(string) (string, bool)) (value string, names []string, err error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String(), names, nil
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			text = after[1:]
			continue
		case !strings.HasPrefix(after, "{"):
			out.WriteByte('$')
			text = after
			continue
		}
		body, rest, closed := strings.Cut(after[1:], "}")
		name, fallback, hasFallback := strings.Cut(body, ":-")
		switch {
		case !closed || !variableName.MatchString(name):
			return "", nil, invalid("has a ${ that does not begin ${NAME} or ${NAME:-default}; $${ is a plain ${")
		case strings.Contains(fallback, "${"):
			return "", nil, invalid("has a ${ inside of a ${}")
		}
		names, text = append(names, name), rest
		v, set := lookup(name)
		switch {
		case hasFallback && v == "": // as in shells: a default is for unset and for empty
			v = fallback
		case !set:
			return "", names[len(names)-1:], invalid("the variable is not set, and has no default as in ${" + name + ":-default}")
		}
		out.WriteString(v)
	}
}
