package config

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// TestSettings tells of each key what is used and where it is from, and no secret.
func TestSettings(t *testing.T) {
	t.Setenv("HOLDFAST_TTL", "5s")
	t.Setenv("MODE", "poll")
	t.Setenv("EMPTY", "")
	f := load(t, "backend: redis://u:s3cr3t@h/0?x=s3cr3t\nttl: 1s\nwait:\n  mode: ${MODE}\n  "+
		"max: ${NOT_SET_HERE:-1}${NOT_SET_EITHER:-s}\n"+
		"service: ${MODE}${NOT_SET_HERE:-r}\nmax_hold: ${EMPTY}\ntracing: {endpoint: "+
		"\"${NOT_SET_HERE:-}\"}\n"+
		"require: [\"${NOT_SET_HERE:-watch}\", \"${NOT_SET_EITHER:-}\"]\n")
	path := f.Path
	got := map[string]string{}
	for _, s := range f.Settings() {
		got[s.Key] = s.Value + " from " + s.From()
	}
	for key, want := range map[string]string{
		"backend": "redis://h/0 from " + path + ":1", "ttl": "5s from HOLDFAST_TTL",
		"wait.mode":   "poll from " + path + ":4, MODE",
		"namespace":   "none from default (HOLDFAST_NAMESPACE is not set)",
		"wait.passes": "512 from default (HOLDFAST_WAIT_PASSES is not set)",
		"wait.max":    "1s from " + path + ":5 (NOT_SET_HERE, NOT_SET_EITHER are not set)",
		"service":     "pollr from " + path + ":6, MODE (NOT_SET_HERE is not set)",
		"max_hold":    "0s, no limit from " + path + ":7 (EMPTY is not set)",
		"tracing.endpoint": "none: no traces are sent from " + path +
			":8 (NOT_SET_HERE is not set)",
		"require": "watch from " + path + ":9 (NOT_SET_HERE is not set)",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if len(got) != len(fields) {
		t.Errorf("%d settings of %d keys", len(got), len(fields))
	}
	for _, s := range (File{}).Settings() { // of which nobody knows what the environment has
		if !s.Default || s.From() != "default" {
			t.Errorf("%+v", s)
		}
	}
	f = load(t, "backend: redis://h/0\n")
	f.Backend, f.Locker.MaxHold = URL{}, time.Minute
	for _, s := range f.Settings() {
		if s.Key == "backend" && s.From() != "default (HOLDFAST_BACKEND is not set)" ||
			s.Key == "max_hold" && s.From() != "the program" {
			t.Errorf("%s is from %s", s.Key, s.From())
		}
	}
}

// ours are the fields that a program sets, and no file.
var ours = []string{"Path", "Locker.Observer", "Locker.Logger"}

// keysOf are the keys of a struct's fields as the file has them.
func keysOf(t reflect.Type, prefix, key string) (keys []string) {
	for f := range t.Fields() {
		name := regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(f.Name, "${1}_${2}")
		full := strings.TrimPrefix(key+"."+strings.ToLower(name), ".")
		switch {
		case !f.IsExported() || slices.Contains(ours, prefix+f.Name):
		case prefix == "" && f.Name == "Locker": // its fields are keys at the top
			keys = append(keys, keysOf(f.Type, "Locker.", "")...)
		case f.Name == "Wait" || f.Name == "Tracing":
			keys = append(keys, keysOf(f.Type, prefix+f.Name+".", full)...)
		default:
			keys = append(keys, full)
		}
	}
	return keys
}

// properties are those of an object of schema.json; nil if it is none.
func properties(o map[string]any) map[string]any {
	p, _ := o["properties"].(map[string]any)
	return p
}

// schemaOf is what schema.json has of a key.
func schemaOf(t *testing.T, fd field) (s map[string]any) {
	t.Helper()
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(fd.key, ".") {
		s, _ = properties(s)[name].(map[string]any)
	}
	return s
}

// TestSchemaHasEveryField holds schema.json, and the table of keys, to the types.
func TestSchemaHasEveryField(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	var have, inTable []string
	for key, p := range properties(root) {
		section := properties(p.(map[string]any))
		if section == nil {
			have = append(have, key)
		}
		for sub := range section {
			have = append(have, key+"."+sub)
		}
	}
	for _, fd := range fields {
		inTable = append(inTable, fd.key)
	}
	want := keysOf(reflect.TypeFor[File](), "", "")
	for _, keys := range [][]string{have, inTable, want} {
		slices.Sort(keys)
	}
	if !slices.Equal(have, want) || !slices.Equal(inTable, want) {
		t.Errorf("the schema has %v\nthe table has  %v\nthe types have %v", have, inTable, want)
	}
}

// takes says whether s, of the kind that schema.json has, takes text, or an item of it.
func takes(s map[string]any, text string) bool {
	if items, ok := s["items"].(map[string]any); ok {
		return takes(items, text)
	}
	if anyOf, ok := s["anyOf"].([]any); ok {
		return slices.ContainsFunc(anyOf, func(s any) bool {
			return takes(s.(map[string]any), text)
		})
	}
	if enum, ok := s["enum"].([]any); ok {
		return slices.Contains(enum, any(text))
	}
	pattern, _ := s["pattern"].(string)
	return regexp.MustCompile(pattern).MatchString(text)
}

// TestSchemaTakesWhatLoadTakes tries the values of the tests, every name that a key may have, and
// what Load refuses.
func TestSchemaTakesWhatLoadTakes(t *testing.T) {
	names, _ := capabilities(&backend.Capabilities{})
	for _, fd := range fields {
		s := schemaOf(t, fd)
		good := append(strings.Split(fullEnv[fd.env()], ", "), "${X:-1}")
		switch fd.key {
		case "require":
			good = append(good, names...)
		case "wait.mode":
			good = append(good, modes...)
		}
		for _, text := range good {
			if !takes(s, text) {
				t.Errorf("%s: %q is refused by %v", fd.key, text, s)
			}
		}
		if fd.key != "namespace" && fd.key != "service" && fd.key != "classes" && takes(s, "soon") {
			t.Errorf("%s: %v", fd.key, s)
		}
		if fd.key == "classes" && takes(s, "*-17") {
			t.Errorf("%s: no class: %v", fd.key, s)
		}
		if !fd.list() && fd.must() == takes(s, "") {
			t.Errorf("%s: empty: %v", fd.key, s)
		}
	}
	doc := schemaOf(t, field{key: "require"})["description"].(string)
	if !strings.Contains(doc, "`"+strings.Join(names, "`, `")+"`") {
		t.Errorf("schema.json names other capabilities than %v: %s", names, doc)
	}
}
