package config

import (
	"os"
	"slices"
	"strings"
)

const envPrefix = "HOLDFAST_"

// environment takes what the environment sets. The values are taken as they are: they went through
// a shell already, and a password may well have a dollar.
//
// A variable that is empty is not set, as deployment templates leave many of them so; but an empty
// HOLDFAST_BACKEND is an error, as it would quietly leave the choice of the store to the file.
func (l *loader) environment() {
	known := make([]string, len(fields))
	for i, fd := range fields {
		known[i] = strings.TrimPrefix(fd.env(), envPrefix)
		text, set := os.LookupEnv(fd.env())
		if !set || text == "" && !fd.must() {
			continue
		}
		items := []string{text}
		if fd.list() {
			items = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		}
		for _, item := range items {
			l.apply(fd, origin{env: []string{fd.env()}}, fd.key, item)
		}
	}
	for _, assignment := range os.Environ() {
		variable, _, _ := strings.Cut(assignment, "=")
		if name, ours := strings.CutPrefix(variable, envPrefix); ours &&
			!slices.Contains(known, name) {
			l.unknown(name, known)
		}
	}
	slices.Sort(l.strange)
}

// others are variables with our prefix that are not meant for Load, and that nobody is to be told
// of: what "holdfast run" sets for its command, and what Kubernetes sets in every pod that runs
// beside a service named holdfast, such as HOLDFAST_SERVICE_HOST and HOLDFAST_PORT_6379_TCP.
var others = pattern(`^HOLDFAST_(KEY|TOKEN)$|_SERVICE_|_PORT($|_)`)

// unknown takes a variable that is probably meant for us: what is a letter or two off is an error,
// as silence about HOLDFAST_BACKED would leave the locks elsewhere. Other unknown ones are
// remembered for a line of the log at level Debug, and no error, as parts of a program may have
// their own (HOLDFAST_SEED).
func (l *loader) unknown(name string, known []string) {
	variable := envPrefix + name
	if meant := nearest(name, known); meant != "" {
		l.fail(origin{env: []string{variable}}, "",
			invalid("unknown variable; did you mean "+envPrefix+meant+"?"))
	} else if !others().MatchString(variable) {
		l.strange = append(l.strange, variable)
	}
}

// apply gives one value, expanded, to its field. where is the field's key, or the item of its list.
func (l *loader) apply(fd field, o origin, where, text string) {
	var err error
	switch _, given := l.from[fd.key]; {
	case text == "" && fd.must():
		err = invalid("is empty")
	case text == "" && (given || o.unset == nil): // the default
		return
	case text == "": // the default too, for the lack of a variable that File.Settings is to name
	case text != strings.TrimSpace(text):
		err = invalid("has white space around it; a line break at the end of a secret is " +
			"the usual one")
	default:
		err = fd.set(&l.File, text)
	}
	l.from[fd.key] = o
	if err != nil {
		l.fail(o.suspects(func(value string) bool {
			return strings.ContainsAny(value, "\r\n")
		}), where, err)
	}
}

// suspects is o with the variables alone whose values are at fault, if any is.
func (o origin) suspects(atFault func(value string) bool) origin {
	some := slices.DeleteFunc(slices.Clone(o.env), func(name string) bool {
		return !atFault(os.Getenv(name))
	})
	if len(some) > 0 { // safeguard: suspect-variables
		o.env = some
	}
	return o
}

// reference is what begins with ${, and the dollar that stands for itself.
var reference = pattern(`\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|\$\{`)

// expand replaces ${NAME}, ${NAME:-default} and $$ in a value of the file, and returns the
// variables that it asked for, and which of them have no value; with an error, the one which is not
// set. Any other dollar stays, as passwords have them. What a variable holds is not expanded again,
// and is never parsed as YAML: text was taken from a parsed scalar.
func expand(text string) (value string, from origin, err error) {
	rest := text
	for _, m := range reference().FindAllStringSubmatch(text, -1) {
		before, after, _ := strings.Cut(rest, m[0])
		value, rest = value+before, after
		name, hasFallback, fallback := m[1], m[2] != "", m[3]
		switch {
		case m[0] == "$$":
			value += "$"
			continue
		case name == "":
			return "", origin{}, invalid(
				"has a ${ that does not begin ${NAME} or ${NAME:-default}; $${ is a plain ${")
		case strings.Contains(fallback, "${"):
			return "", origin{}, invalid("has a ${ inside of a ${}")
		}
		from.env = append(from.env, name)
		v, set := os.LookupEnv(name)
		if v == "" {
			from.unset = append(from.unset, name)
		}
		switch {
		case v == "" && hasFallback: // as in shells: a default is for unset and for empty
			v = fallback
		case !set:
			return "", origin{env: []string{name}},
				invalid("the variable is not set, and has no default as in ${" + name +
					":-default}")
		}
		value += v
	}
	return value + rest, from, nil
}
