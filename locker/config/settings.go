package config

import (
	"strconv"
	"strings"
)

// A Setting is one key of a [File]: what is used, and where that comes from.
type Setting struct {
	Key     string // such as wait.mode
	Value   string // as it is in the file, without secrets; of a default what docs/configuration.md says
	Default bool   // nothing was given

	// Where [Load] had the value from, as in [Error]. All are zero for a default, and for what only
	// the program has set.
	File string
	Line int
	Env  []string
}

// From says where the value came from: "holdfast.yaml:3", "HOLDFAST_TTL", both, or "default".
func (s Setting) From() string {
	var from []string
	if s.File != "" {
		from = append(from, s.File+":"+strconv.Itoa(s.Line))
	}
	switch from = append(from, s.Env...); {
	case s.Default:
		return "default"
	case len(from) == 0:
		return "the program"
	}
	return strings.Join(from, ", ")
}

// Settings returns every key in the order of docs/configuration.md, for people who want to know
// what a program would use.
func (f File) Settings() []Setting {
	all := make([]Setting, 0, len(fields))
	for _, fd := range fields {
		s := Setting{Key: fd.key, Value: fd.get(&f)}
		if s.Value == "" {
			s.Value, s.Default = strings.ReplaceAll(fd.def, "`", ""), true
		} else {
			o := f.origin(fd.key)
			s.Line, s.Env = o.line, o.env
			if o.line > 0 {
				s.File = f.Path
			}
		}
		all = append(all, s)
	}
	return all
}
