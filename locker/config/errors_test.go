package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

var long5000 = strings.Repeat("x", 5000)

// badFiles are all problems that a file's text can have, each with the whole text of its errors.
var badFiles = []struct{ name, text, want string }{
	{"empty", "", "config: holdfast.yaml: is empty"},
	{"comment only", "# nothing\n", "config: holdfast.yaml: is empty"},
	{"null", "null\n", "config: holdfast.yaml: is empty"},
	{"text", "redis://h", "config: holdfast.yaml:1: must hold keys and values (is there a space " +
		"behind every colon?)"},
	{"list", "- ttl: 1s", "config: holdfast.yaml:1: must hold keys and values (is there a space " +
		"behind every colon?)"},
	{
		"two documents", "ttl: 1s\n---\nttl: 2s\n",
		"config: holdfast.yaml:2: begins a second YAML document; there must be one",
	},
	{
		"bad second document", "ttl: 1s\n---\nttl: [\n",
		"config: holdfast.yaml:3: is not valid YAML: did not find expected node content",
	},
	{"not UTF-8", "ttl: 1s\nservice: \xff\n", "config: holdfast.yaml:2: is not UTF-8"},
	{"binary", "ttl: 1s\nservice: \x00\n", "config: holdfast.yaml:2: has a control character"},

	{
		"tab", "wait:\n  mode: poll\n\tmax: 1s\n",
		"config: holdfast.yaml:3: is not valid YAML: the line is indented with a tab; use spaces",
	},
	{
		"dedent", "wait:\n  mode: poll\n max: 1s\n",
		"config: holdfast.yaml:3: is not valid YAML: did not find expected key",
	},
	{
		"open quote", "ttl: 1s\nservice: \"x\n",
		"config: holdfast.yaml:2: is not valid YAML: found unexpected end of stream (is a " +
			"quote left open?)",
	},
	{
		"at sign", "service: @x\n",
		"config: holdfast.yaml:1: is not valid YAML: found character that cannot start any token " +
			"(a value that begins with @, ` or % needs quotes)",
	},
	{
		"colon", "ttl: 1s\nservice: a: b\n",
		"config: holdfast.yaml:2: is not valid YAML: mapping values are not allowed in this " +
			"context (a value with a colon and a space needs quotes)",
	},
	{
		"no colon", "ttl: 1s\nservice\nnamespace: x\n",
		"config: holdfast.yaml:2: is not valid YAML: could not find expected ':'",
	},
	{
		"JSON without comma", "{\"ttl\": \"1s\"\n\"service\": \"x\"}",
		"config: holdfast.yaml:2: is not valid YAML: did not find expected ',' or '}' (inside of " +
			"{} and [], ${…} needs quotes)",
	},
	{"rare problem", "ttl: !!!<\n", "config: holdfast.yaml: is not valid YAML"},

	{
		"alias", "service: &x a\n",
		"config: holdfast.yaml:1: service: anchors, aliases and merge keys are not supported; " +
			"write the value out",
	},
	{
		"known alias", "wait: &w {max: 1s}\ntracing: *w\n",
		"config: holdfast.yaml:1: wait: anchors, aliases and merge keys are not supported; write " +
			"the value out\n" +
			"config: holdfast.yaml:2: tracing: anchors, aliases and merge keys are not " +
			"supported; write the value out",
	},
	{
		"unknown alias", "ttl: 1s\nservice: *x\n",
		"config: holdfast.yaml:2: anchors, aliases and merge keys are not supported; write the " +
			"value out (a value that begins with & or * needs quotes)",
	},
	{
		"merge key", "<<: {ttl: 1s}\n",
		"config: holdfast.yaml:1: anchors, aliases and merge keys are not supported; write " +
			"the value out",
	},

	{"unknown key", "password: x\n", "config: holdfast.yaml:1: password: unknown key"},
	{
		"misspelled key", "ttl: 1s\nmaxHold: 1s\n",
		"config: holdfast.yaml:2: maxHold: unknown key; did you mean max_hold?",
	},
	{
		"misspelled section", "wiat: {mode: poll}\n",
		"config: holdfast.yaml:1: wiat: unknown key; did you mean wait?",
	},
	{
		"misspelled nested key", "wait:\n  fall_back: 1s\n",
		"config: holdfast.yaml:2: wait.fall_back: unknown key; did you mean wait.fallback?",
	},
	{
		"key at the top", "endpoint: http://h\n",
		"config: holdfast.yaml:1: endpoint: unknown key; did you mean endpoint under tracing?",
	},
	{
		"dotted key", "wait.mode: poll\n",
		"config: holdfast.yaml:1: wait.mode: unknown key; did you mean mode under wait?",
	},
	{
		"key too deep", "wait: {ttl: 1s}\n",
		"config: holdfast.yaml:1: wait.ttl: unknown key; did you mean ttl, which is " +
			"not under wait?",
	},
	{
		"duplicate key", "ttl: 1s\nservice: x\nttl: 2s\n",
		"config: holdfast.yaml:3: ttl: is there already, at line 1",
	},
	{
		"duplicate section", "wait: {}\nwait: {}\n",
		"config: holdfast.yaml:2: wait: is there already, at line 1",
	},
	{
		"no space behind colon", "{backend:redis://u:hunter2@h}",
		"config: holdfast.yaml:1: has an unknown key, which is not shown as it does not look " +
			"like one (is there a space behind every colon?)",
	},
	{
		"list as key", "wait:\n  ? [a]\n  : b\n",
		"config: holdfast.yaml:2: wait: has a key that is a list",
	},

	{
		"section is text", "wait: poll\n",
		"config: holdfast.yaml:1: wait: must hold keys and values, not a text",
	},
	{
		"section is list", "wait: [poll]\n",
		"config: holdfast.yaml:1: wait: must hold keys and values, not a list",
	},
	{
		"URL is number", "backend: 6379\n",
		"config: holdfast.yaml:1: backend: must be a URL, not a number; put it in quotes if it " +
			"is meant as text",
	},
	{
		"text is true", "service: true\n",
		"config: holdfast.yaml:1: service: must be a text, not true or false; put it in quotes " +
			"if it is meant as text",
	},
	{
		"text is date", "service: 2026-01-01\n",
		"config: holdfast.yaml:1: service: must be a text, not a date; put it in quotes if it is " +
			"meant as text",
	},
	{
		"tag", "service: !secret x\n",
		"config: holdfast.yaml:1: service: must be a text, not a value with a tag; put it in " +
			"quotes if it is meant as text",
	},
	{
		"text is mapping", "namespace: {a: b}\n",
		"config: holdfast.yaml:1: namespace: must be a text, not a mapping",
	},
	{
		"duration without unit", "ttl: 30\n",
		"config: holdfast.yaml:1: ttl: needs a unit, such as 30s, 1m30s or 500ms",
	},
	{
		"duration is list", "ttl: [30s]\n",
		"config: holdfast.yaml:1: ttl: must be a duration, not a list",
	},
	{
		"list is text", "require: fencing\n",
		"config: holdfast.yaml:1: require: must be a list, in [] or of lines that begin with " +
			"-, not a text",
	},
	{
		"item is list", "require: [watch, [fencing]]\n",
		"config: holdfast.yaml:1: require[1]: must be a text, not a list",
	},

	{"empty backend", "backend:\n", "config: holdfast.yaml:1: backend: is empty"},
	{
		"empty backend by variable", "backend: ${EMPTY}\n",
		"config: holdfast.yaml:1: backend (from EMPTY): is empty",
	},
	{
		"no scheme", "backend: localhost:6379\n",
		"config: holdfast.yaml:1: backend: is not a URL, such as redis://host:6379/0",
	},
	{
		"slash in password", "backend: redis://u:a/b@h\n",
		"config: holdfast.yaml:1: backend: has an @ behind its host; percent-encode special " +
			"characters in user and password",
	},
	{
		"bad duration", "ttl: 1 day\n",
		"config: holdfast.yaml:1: ttl: is not a duration, such as 30s, 1m30s or 500ms",
	},
	{
		"overflow", "max_hold: 9999999h\n",
		"config: holdfast.yaml:1: max_hold: is not a duration, such as 30s, 1m30s or 500ms",
	},
	{"zero ttl", "ttl: 0s\n", "config: holdfast.yaml:1: ttl: 0s must be positive"},
	{"negative ttl", "ttl: -5s\n", "config: holdfast.yaml:1: ttl: -5s must be positive"},
	{"long ttl", "ttl: 25h\n", "config: holdfast.yaml:1: ttl: 25h0m0s is over 24h0m0s"},
	{"negative", "max_hold: -1s\n", "config: holdfast.yaml:1: max_hold: -1s is negative"},
	{
		"zero", "release_timeout: 0s\n",
		"config: holdfast.yaml:1: release_timeout: 0s is not positive; leave the key out " +
			"for its default",
	},
	{
		"mode", "wait: {mode: notfy}\n",
		"config: holdfast.yaml:1: wait.mode: is none of auto, handoff, notify, poll; did " +
			"you mean notify?",
	},
	{
		"passes no number", "wait: {passes: many}\n",
		"config: holdfast.yaml:1: wait.passes: is not a whole number",
	},
	{
		"passes zero", "wait: {passes: 0}\n",
		"config: holdfast.yaml:1: wait.passes: 0 is neither -1 nor between 1 and 1023",
	},
	{
		"max below initial", "wait:\n  max: 1s\n  initial: 2s\n",
		"config: holdfast.yaml:2: wait.max: 1s is below wait.initial, which is 2s",
	},
	{
		"max below default", "wait: {max: 1ms}\n",
		"config: holdfast.yaml:1: wait.max: 1ms is below wait.initial, which is 5ms",
	},
	{
		"long waits", "wait: {fallback: 25h, max: 25h}\n",
		"config: holdfast.yaml:1: wait.fallback: 25h0m0s is over 24h0m0s\n" +
			"config: holdfast.yaml:1: wait.max: 25h0m0s is over 24h0m0s",
	},
	{
		"fail fast", "wait: {fail_fast: yes}\n",
		"config: holdfast.yaml:1: wait.fail_fast: is neither true nor false",
	},
	{
		"fail fast, a number", "wait: {fail_fast: 1}\n",
		"config: holdfast.yaml:1: wait.fail_fast: must be a true or false, not a number; put it " +
			"in quotes if it is meant as text",
	},
	{
		"capability", "require:\n  - watch\n  - fenced\n",
		"config: holdfast.yaml:3: require[1]: is none of shared, permit, weight, fencing, queue, " +
			"watch, reentrant, state, notbefore, inspect, observe, mintoken, tookover, loss",
	},
	{
		"capability with suggestion", "require: [fencng]\n",
		"config: holdfast.yaml:1: require[0]: is none of shared, permit, weight, fencing, queue, " +
			"watch, reentrant, state, notbefore, inspect, observe, mintoken, tookover, loss; did " +
			"you mean fencing?",
	},
	{
		"capability that is no yes or no", "require: [MinTTL]\n",
		"config: holdfast.yaml:1: require[0]: is none of shared, permit, weight, fencing, queue, " +
			"watch, reentrant, state, notbefore, inspect, observe, mintoken, tookover, loss",
	},
	{
		"long namespace", "namespace: " + long5000 + "\n",
		"config: holdfast.yaml:1: namespace: has 5002 bytes, over 1024",
	},
	{
		"long service", "service: " + long5000 + "\n",
		"config: holdfast.yaml:1: service: has 5000 bytes, over 1024",
	},
	{
		"white space", "service: ' x'\n",
		"config: holdfast.yaml:1: service: has white space around it; a line break at the end of " +
			"a secret is the usual one",
	},
	{
		"white space by variable", "namespace: ${NEWLINE}\n",
		"config: holdfast.yaml:1: namespace (from NEWLINE): has white space around it; a line " +
			"break at the end of a secret is the usual one",
	},

	{
		"endpoint without scheme", "tracing: {endpoint: 'localhost:4318'}\n",
		"config: holdfast.yaml:1: tracing.endpoint: has none of the schemes http://, https://, " +
			"grpc://, grpcs://",
	},
	{
		"endpoint is no URL", "tracing: {endpoint: 'http://a b'}\n",
		"config: holdfast.yaml:1: tracing.endpoint: is not a URL, such as http://localhost:4318",
	},
	{
		"endpoint without host", "tracing: {endpoint: 'http://:4318'}\n",
		"config: holdfast.yaml:1: tracing.endpoint: has no host",
	},
	{
		"endpoint with port", "tracing: {endpoint: 'http://h:99999'}\n",
		"config: holdfast.yaml:1: tracing.endpoint: has a port outside of 1 to 65535",
	},
	{
		"endpoint with path", "tracing: {endpoint: 'grpc://h/v1/traces'}\n",
		"config: holdfast.yaml:1: tracing.endpoint: has a path, which OTLP over gRPC does not",
	},

	{
		"unset variable", "ttl: 1s\nbackend: redis://u:${NOT_SET_HERE}@h\n",
		"config: holdfast.yaml:2: backend (from NOT_SET_HERE): the variable is not set, and has " +
			"no default as in ${NOT_SET_HERE:-default}",
	},
	{
		"bad value of variable", "ttl: ${LEASE}\n",
		"config: holdfast.yaml:1: ttl (from LEASE): is not a duration, such as 30s, " +
			"1m30s or 500ms",
	},
	{
		"two variables", "ttl: ${LEASE}${EMPTY:-s}\n",
		"config: holdfast.yaml:1: ttl (from LEASE, EMPTY): is not a duration, such as 30s, " +
			"1m30s or 500ms",
	},
	{
		"line break in one of two variables", "backend: redis://${LEASE}:${TWOLINES}@h\n",
		"config: holdfast.yaml:1: backend (from TWOLINES): " +
			"has a line break in it, as a secret that is read from a file may; remove it, or " +
			"percent-encode it",
	},
	{
		"line break behind the last of two variables", "backend: redis://${LEASE}@${NEWLINE}\n",
		"config: holdfast.yaml:1: backend (from NEWLINE): " +
			"has white space around it; a line break at the end of a secret is the usual one",
	},
	{
		"open variable", "service: ${LEASE\n",
		"config: holdfast.yaml:1: service: has a ${ that does not begin ${NAME} or " +
			"${NAME:-default}; $${ is a plain ${",
	},
	{
		"bad variable", "service: ${LEASE:?no}\n",
		"config: holdfast.yaml:1: service: has a ${ that does not begin ${NAME} or " +
			"${NAME:-default}; $${ is a plain ${",
	},
	{
		"nested variable", "service: ${A:-${B}}\n",
		"config: holdfast.yaml:1: service: has a ${ inside of a ${}",
	},

	{
		"many", "ttl: x\nwait:\n  mode: x\n  foo: 1\nbackend: x\n",
		"config: holdfast.yaml:1: ttl: is not a duration, such as 30s, 1m30s or 500ms\n" +
			"config: holdfast.yaml:3: wait.mode: is none of auto, handoff, notify, poll\n" +
			"config: holdfast.yaml:4: wait.foo: unknown key\n" +
			"config: holdfast.yaml:5: backend: is not a URL, such as redis://host:6379/0",
	},
}

func TestBadFile(t *testing.T) {
	t.Setenv("EMPTY", "")
	t.Setenv("LEASE", "soon")
	t.Setenv("NEWLINE", "shop\n")
	t.Setenv("TWOLINES", "a\r\nb")
	for _, tt := range badFiles {
		t.Run(tt.name, func(t *testing.T) {
			found, texts := problems(t, write(t, tt.text))
			if got := strings.Join(texts, "\n"); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			for _, e := range found {
				var inv *backend.InvalidError
				if !errors.Is(e, backend.ErrInvalid) || !errors.As(e, &inv) || inv.Field == "" ||
					inv.Reason == "" {
					t.Errorf("%v wraps %#v, want an InvalidError with field and reason", e, e.Err)
				}
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	found, texts := problems(t, missing)
	if want := []string{"config: missing.yaml: no such file or directory"}; !slices.Equal(texts,
		want) {
		t.Errorf("missing: %q, want %q", texts, want)
	}
	if !errors.Is(found[0], fs.ErrNotExist) || errors.Is(found[0], backend.ErrInvalid) {
		t.Errorf("missing: %#v, want one that is fs.ErrNotExist and nothing else", found[0].Err)
	}

	dir := filepath.Join(t.TempDir(), "etc")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	found, texts = problems(t, dir)
	if want := []string{"config: etc: is a directory, not a file"}; !slices.Equal(texts, want) ||
		!errors.Is(found[0], backend.ErrInvalid) {
		t.Errorf("directory: %q, want %q", texts, want)
	}

	full := "service: x\n" + strings.Repeat("#", maxSize-11)
	if _, err := Load(write(t, full)); err != nil {
		t.Errorf("a file of just the limit: %v", err)
	}
	_, texts = problems(t, write(t, full+"#"))
	want := []string{"config: holdfast.yaml: is over 1 MiB, which is no configuration of locks"}
	if !slices.Equal(texts, want) {
		t.Errorf("huge: %q, want %q", texts, want)
	}
}

func TestAliasBomb(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a: &a [x, x]\n")
	for c := 'b'; c <= 'z'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c [*%c, *%c, *%c, *%c]\n", c, c, c-1, c-1, c-1, c-1)
	}
	_, texts := problems(t, write(t, bomb.String()))
	if len(texts) != maxErrors+1 ||
		texts[maxErrors] != "config: holdfast.yaml: has 6 more problems" {
		t.Errorf("got %d errors: %q", len(texts), texts)
	}
}

func TestDeep(t *testing.T) {
	for _, unit := range []string{"[", "{", "- ", "? ", "a: {", "!t ", "&a "} {
		_, err := Load(write(t, strings.Repeat(unit, maxSize/len(unit))))
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("1 MiB of %q: %v", unit, err)
		}
	}
}
