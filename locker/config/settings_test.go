package config

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSettings tells of each key what is used and where it is from, and no secret.
func TestSettings(t *testing.T) {
	t.Setenv("HOLDFAST_TTL", "5s")
	t.Setenv("MODE", "poll")
	f := load(t, "backend: redis://u:s3cr3t@h/0?x=s3cr3t\nttl: 1s\nwait:\n  mode: ${MODE}\n")
	path := f.Path
	got := map[string]string{}
	for _, s := range f.Settings() {
		got[s.Key] = s.Value + " from " + s.From()
	}
	for key, want := range map[string]string{
		"backend": "redis://h/0 from " + path + ":1", "ttl": "5s from HOLDFAST_TTL", "wait.mode": "poll from " + path + ":4, MODE",
		"namespace": "none from default", "wait.passes": "512 from default",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if len(got) != len(fields) {
		t.Errorf("%d settings of %d keys", len(got), len(fields))
	}
	f.Backend, f.Locker.MaxHold = URL{}, time.Minute
	for _, s := range f.Settings() {
		if s.Key == "backend" && s.From() != "default" || s.Key == "max_hold" && s.From() != "the program" {
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

// TestSchemaHasEveryField holds the schema, and the table of keys, to the types.
func TestSchemaHasEveryField(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	var have []string
	for key, p := range properties(root) {
		section, ok := p.(map[string]any)["properties"].(map[string]any)
		if !ok {
			have = append(have, key)
		}
		for sub := range section {
			have = append(have, key+"."+sub)
		}
	}
	slices.Sort(have)
	want := keysOf(reflect.TypeFor[File](), "", "")
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the schema has %v\nthe types have %v", have, want)
	}
}

// TestSchemaTakesWhatLoadTakes tries the values of the tests, and what Load refuses.
func TestSchemaTakesWhatLoadTakes(t *testing.T) {
	for _, fd := range fields {
		s := fd.schema()
		takes := func(text string) bool {
			if fd.oneOf != nil {
				return slices.Contains(fd.oneOf, text)
			}
			pattern, _ := s["pattern"].(string)
			return regexp.MustCompile(pattern).MatchString(text)
		}
		for text := range strings.SplitSeq(fullEnv[fd.env()], ", ") {
			if !takes(text) {
				t.Errorf("%s: %q is refused by %v", fd.key, text, s)
			}
		}
		if fd.oneOf == nil && fd.kind != "text" && (!takes("${X:-1}") || takes("soon")) {
			t.Errorf("%s: %v", fd.key, s)
		}
		if fd.oneOf == nil && fd.must == takes("") {
			t.Errorf("%s: empty: %v", fd.key, s)
		}
	}
}
