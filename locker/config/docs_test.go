package config

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

var update = flag.Bool("update", false, "write the table of keys into docs/configuration.md")

const page = "../../docs/configuration.md"

// meaning is what schema.json says of a key, without its default, which it must name.
func meaning(t *testing.T, fd field) string {
	t.Helper()
	text, _ := schemaOf(t, fd)["description"].(string)
	doc, ok := strings.CutSuffix(text, " Default: "+fd.def+".")
	if !ok {
		t.Errorf("schema.json says of %s %q, which does not end with its default, %s", fd.key, text,
			fd.def)
	}
	return doc
}

// table is what the page has of the fields.
func table(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| key | variable | kind | default | meaning |\n|---|---|---|---|---|\n")
	for _, fd := range fields {
		def, kind := fd.def, fd.kind()
		if fd.key == "wait.mode" {
			def = "`" + def + "`"
		}
		if fd.list() {
			kind = "list"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", fd.key, fd.env(), kind, def,
			meaning(t, fd))
	}
	return b.String()
}

func TestDocs(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	between := regexp.MustCompile(`(?s)(<!-- keys: [^\n]*-->\n).*?(<!-- /keys -->)`)
	if !between.Match(data) {
		t.Fatal("the page has no place for the table of keys")
	}
	want := between.ReplaceAllString(string(data), "${1}"+strings.ReplaceAll(table(t), "$", "$$")+
		"${2}")
	if want == string(data) {
		return
	}
	if !*update {
		t.Fatal("the table of keys is out of date: go test ./locker/config -run TestDocs -update")
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDocsExamples loads every example of the page.
func TestDocsExamples(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("REDIS_PASSWORD", "p")
	examples := regexp.MustCompile("(?s)```(?:yaml|json)\n(.*?)```").FindAllStringSubmatch(
		string(data), -1)
	if len(examples) < 5 {
		t.Fatalf("found %d examples", len(examples))
	}
	for _, example := range examples {
		if f, err := Load(write(t, example[1])); err != nil {
			t.Errorf("%v in\n%s", err, example[1])
		} else if f.Backend.IsZero() {
			t.Errorf("names no backend:\n%s", example[1])
		}
	}
	f := load(t, examples[0][1])
	for _, fd := range fields {
		if fd.get(&f) == "" {
			t.Errorf("the first example, which is to have everything, has no %s", fd.key)
		}
	}
}

// TestDocsErrors finds the texts of the page's errors in those of the tests.
func TestDocsErrors(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, tt := range badFiles {
		for line := range strings.Lines(tt.want) {
			known = append(known, reasonIn(line))
		}
	}
	for line := range strings.Lines(string(data)) {
		if reason := reasonIn(line); strings.HasPrefix(line, "config: ") &&
			!slices.Contains(known, reason) {
			t.Errorf("no error says %q", reason)
		}
	}
}

// reasonIn is an error's text without its place, and without what depends on the variable's name.
func reasonIn(line string) string {
	i := strings.LastIndex(strings.ReplaceAll(line, ":-", "--"), ": ")
	return regexp.MustCompile(`\$\{[A-Z_]+`).ReplaceAllString(strings.TrimSpace(line[i+2:]), "${X")
}

// TestDefaultsAreDocumented holds the table to what the other packages have.
func TestDefaultsAreDocumented(t *testing.T) {
	for key, def := range map[string]string{
		"ttl": "`" + locker.DefaultTTL.String() + "`", "wait.fallback": "`" +
			waiting.DefaultFallback.String() + "`",
		"wait.passes": "`" + strconv.Itoa(waiting.DefaultPasses) + "`", "wait.pass_time": "`" +
			waiting.DefaultPassTime.String() + "`",
		"wait.initial": "`" + waiting.DefaultInitial.String() + "`", "wait.max": "`" +
			waiting.DefaultMax.String() + "`",
	} {
		i := slices.IndexFunc(fields, func(fd field) bool { return fd.key == key })
		if !strings.HasPrefix(fields[i].def, def) {
			t.Errorf("%s is documented with default %s, want %s", key, fields[i].def, def)
		}
	}
}
