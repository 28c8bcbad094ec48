package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
)

// String returns what is configured as key=value pairs, without secrets. Keys that have their
// default are left out.
func (f File) String() string {
	var pairs []string
	for _, fd := range fields {
		if text := fd.get(&f); text != "" {
			pairs = append(pairs, fd.key+"="+text)
		}
	}
	return strings.Join(pairs, " ")
}

// GoString returns what [File.String] does, in braces.
func (f File) GoString() string { return "config.File{" + f.String() + "}" }

// Format prints f without secrets, whatever the verb.
func (f File) Format(s fmt.State, verb rune) { format(s, verb, f) }

// LogValue returns what is configured as a group, without secrets.
func (f File) LogValue() slog.Value {
	var attrs []slog.Attr
	for _, fd := range fields {
		if text := fd.get(&f); text != "" {
			attrs = append(attrs, slog.String(fd.key, text))
		}
	}
	return slog.GroupValue(attrs...)
}

// MarshalJSON returns what is configured in the form of a configuration file, without secrets.
func (f File) MarshalJSON() ([]byte, error) {
	root := map[string]any{}
	for _, fd := range fields {
		text := fd.get(&f)
		if text == "" {
			continue
		}
		in, name := root, fd.key
		if section, leaf, nested := strings.Cut(fd.key, "."); nested {
			if root[section] == nil {
				root[section] = map[string]any{}
			}
			in, name = root[section].(map[string]any), leaf //nolint:errcheck // put there a line above
		}
		if in[name] = text; fd.list() {
			in[name] = strings.Split(text, ",")
		}
	}
	return json.Marshal(root)
}
