package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestModules(t *testing.T) {
	const list = `{"Module": {"Path": "a.org/a", "Dir": "/a", "Main": true}} {} ` +
		`{"Module": {"Path": "b.org/b", "Dir": "/b"}}
{"Module": {"Path": "b.org/b", "Dir": "/b"}}`
	got, err := modules([]part{{"go", "/go"}}, list)
	if want := []part{{"go", "/go"}, {"b.org/b", "/b"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if _, err := modules(nil, "{"); err == nil {
		t.Error("half a list is read")
	}
}

// What is copied is the license and what belongs to it; what is unknown is refused.
func TestSave(t *testing.T) {
	folder := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	to := filepath.Join(t.TempDir(), "a.org", "a")
	kind, err := save(to, folder(map[string]string{
		"LICENSE.txt": "                 Apache License\n           Version 2.0, January 2004\n",
		"NOTICE":      "by a", "README": "x",
	}))
	if err != nil || kind != "Apache-2.0" {
		t.Errorf("got %q, %v", kind, err)
	}
	saved, err := os.ReadDir(to)
	if err != nil || len(saved) != 2 {
		t.Errorf("saved %v, %v", saved, err)
	}
	for _, files := range []map[string]string{{"README": "MIT"}, {"LICENSE": "You may not."}} {
		if kind, err := save(t.TempDir(), folder(files)); err == nil {
			t.Errorf("%v is taken for %s", files, kind)
		}
	}
}
