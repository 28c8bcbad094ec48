package config

import (
	"encoding/json"
	"strings"
)

// variable is a ${NAME}, which may stand in place of anything: what it becomes is not to be seen.
const variable = `\$\{[A-Za-z_]`

// Schema returns a JSON Schema (2020-12) of the file, for editors and checks that know no store. It
// takes what [Load] takes, written as docs/configuration.md has it: names in lower case. What a
// ${NAME} stands for, a URL's parts and what two keys may not be together are for Load to refuse.
func Schema() []byte {
	root := object("holdfast", "How a program takes locks: https://github.com/holdfast-go/holdfast/blob/main/docs/configuration.md")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["type"] = "object" // an empty file is an error
	for _, fd := range fields {
		at, key := root, fd.key
		if section, rest, ok := strings.Cut(key, "."); ok {
			if at, ok = properties(root)[section].(map[string]any); !ok {
				at = object("", "")
				properties(root)[section] = at
			}
			key = rest
		}
		properties(at)[key] = fd.schema()
	}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // texts and maps of them
	}
	return append(text, '\n')
}

func object(title, doc string) map[string]any {
	o := map[string]any{"type": []string{"object", "null"}, "additionalProperties": false, "properties": map[string]any{}}
	if title != "" {
		o["title"], o["description"] = title, doc
	}
	return o
}

func properties(o map[string]any) map[string]any { return o["properties"].(map[string]any) } //nolint:errcheck // as object made it

// schema is that of one key's value.
func (fd field) schema() map[string]any {
	var s map[string]any
	texts := map[string]any{"type": "string"}
	if fd.oneOf != nil {
		texts = map[string]any{"anyOf": []any{map[string]any{"enum": fd.oneOf}, map[string]any{"type": "string", "pattern": variable}}}
	}
	switch fd.kind {
	case "list":
		s = map[string]any{"type": []string{"array", "null"}, "items": texts}
	case "duration":
		s = map[string]any{"type": []string{"string", "null"}, "pattern": `^$|^0$|^[+-]?([0-9.]+(ns|us|µs|ms|s|m|h))+$|` + variable}
	case "number":
		s = map[string]any{"type": []string{"integer", "string", "null"}, "pattern": `^$|^[+-]?[0-9]+$|` + variable}
	case boolKind:
		s = map[string]any{"type": []string{"boolean", "string", "null"}, "pattern": `^$|^(true|false)$|` + variable}
	case "URL":
		s = map[string]any{"type": []string{"string", "null"}, "pattern": `^$|^[a-z][a-z0-9+.-]*://|` + variable}
	default:
		s = map[string]any{"type": []string{"string", "null"}}
		if fd.oneOf != nil {
			s = map[string]any{"anyOf": []any{texts, map[string]any{"enum": []any{nil, ""}}}}
		}
	}
	if fd.must {
		s["type"] = "string"
		s["pattern"] = strings.TrimPrefix(s["pattern"].(string), "^$|") //nolint:errcheck // only the URL of the store must be there
	}
	s["description"] = fd.doc + " Default: " + fd.def + "."
	return s
}
