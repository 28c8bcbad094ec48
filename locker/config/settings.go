package config

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
)

//go:embed schema.json
var schema string

// Schema returns a JSON Schema (2020-12) of the file, for editors and checks that know no store. It
// takes what [Load] takes, written as docs/configuration.md has it: names in lower case. What a
// ${NAME} stands for, a URL's parts and keys that may not be set together are for Load to refuse.
func Schema() []byte { return []byte(schema) }

// A Setting is one key of a [File]: what is used, and where that comes from.
type Setting struct {
	Key string // such as wait.mode
	// as it is in the file, without secrets; of a default what docs/configuration.md says
	Value   string
	Default bool // nothing was given, or what is the default anyhow

	// Where [Load] had the value from, as in [Error]. All are zero for what only the program has
	// set.
	File string
	Line int
	Env  []string // the variables that are set

	// Unset are the variables that were asked for and are not set, or empty, so that a default
	// stands: the file's, or if Default, ours.
	Unset []string
}

// From says where the value came from: "holdfast.yaml:3", "HOLDFAST_TTL", both, or "default"; and
// behind each default which variables are not set.
func (s Setting) From() string {
	var from []string
	if s.File != "" {
		from = append(from, s.File+":"+strconv.Itoa(s.Line))
	}
	from = append(from, s.Env...)
	switch {
	case from == nil && s.Default:
		from = []string{"default"}
	case from == nil:
		from = []string{"the program"}
	}
	are := ""
	switch {
	case len(s.Unset) == 1:
		are = " (" + s.Unset[0] + " is not set)"
	case len(s.Unset) > 1:
		are = " (" + strings.Join(s.Unset, ", ") + " are not set)"
	}
	return strings.Join(from, ", ") + are
}

// Settings returns every key in the order of docs/configuration.md, for people who want to know
// what a program would use.
func (f File) Settings() []Setting {
	all := make([]Setting, 0, len(fields))
	for _, fd := range fields {
		s := Setting{Key: fd.key, Value: fd.get(&f)}
		if s.Value == "" {
			s.Value, s.Default = strings.ReplaceAll(fd.def, "`", ""), true
		}
		o, given := f.origin(fd.key)
		switch {
		case given: // perhaps as an empty value
			s.Line, s.Unset = o.line, o.unset
			s.Env = slices.DeleteFunc(slices.Clone(o.env), func(name string) bool {
				return slices.Contains(o.unset, name)
			})
			if o.line > 0 {
				s.File = f.Path
			}
		case s.Default && f.from != nil:
			s.Unset = []string{fd.env()}
		}
		all = append(all, s)
	}
	return all
}
