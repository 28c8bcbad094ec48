package config

import (
	"slices"
	"strings"
)

const envPrefix = "HOLDFAST_"

// environment takes what the environment sets. The values are taken as they are: they went through
// a shell already, and a password may well have a dollar.
//
// A variable that is empty is not set, as deployment templates leave many of them so; but an empty
// HOLDFAST_BACKEND is an error, as it would quietly put the locks into this process's memory, where
// they exclude nobody else.
func (l *loader) environment() {
	for _, fd := range fields {
		text, set := l.lookup(fd.env())
		if !set || text == "" && !fd.must {
			continue
		}
		items := []string{text}
		if fd.list() {
			items = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		}
		o := origin{env: []string{fd.env()}}
		for _, item := range items {
			l.apply(fd, o, fd.key, item)
		}
	}
	l.misspelled()
}

// misspelled finds variables that are probably meant for us. Other unknown ones with our prefix are
// none of our business, so they are neither an error nor noise: parts of a program have their own
// (HOLDFAST_SEED), and Kubernetes sets HOLDFAST_PORT, HOLDFAST_SERVICE_HOST and more in every pod
// that runs beside a service named holdfast. An error would keep those from starting; silence about
// HOLDFAST_BACKED would be worse, so what is a letter or two off is one.
func (l *loader) misspelled() {
	known := make([]string, len(fields))
	for i, fd := range fields {
		known[i] = strings.TrimPrefix(fd.env(), envPrefix)
	}
	for _, assignment := range l.environ {
		variable, _, _ := strings.Cut(assignment, "=")
		name, ours := strings.CutPrefix(variable, envPrefix)
		if !ours || slices.Contains(known, name) {
			continue
		}
		if meant := nearest(name, known); meant != "" {
			hint := "unknown variable; did you mean " + envPrefix + meant + "?"
			l.fail(origin{env: []string{variable}}, "", invalid(hint))
		}
	}
}

// apply gives one value, expanded, to its field. where is the field's key, or the item of its list.
func (l *loader) apply(fd field, o origin, where, text string) {
	var err error
	switch {
	case text == "" && fd.must:
		err = invalid("is empty")
	case text == "":
		return // the default
	case text != strings.TrimSpace(text):
		err = invalid("has white space around it; a line break at the end of a secret is the usual one")
	default:
		err = fd.set(&l.file, text)
	}
	l.from[fd.key] = o
	if err != nil {
		l.fail(o, where, err)
	}
}
