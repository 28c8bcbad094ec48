package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestReleaseRefuses has .ci/release refuse what cannot be released, before it builds anything.
// make release tries the rest of it.
func TestReleaseRefuses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a shell script")
	}
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a",
			"GIT_AUTHOR_EMAIL=a@example.org",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
			"PATH="+filepath.Join(dir, ".git", "bin")+string(filepath.ListSeparator)+
				os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		//nolint:gosec // a script is to be run
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		if out, err := run("git", args...); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	refused := func(version, why string) {
		t.Helper()
		if out, err := run(".ci/release", version); err == nil || !strings.Contains(out, why) {
			t.Errorf("%q: %v\n%s\nwant it refused: %s", version, err, out, why)
		}
	}
	put(".ci/release", read(tree(), ".ci/release"))
	put("go.work", "use (\n\t.\n)\n")
	put("CHANGELOG.md", "## [Unreleased]\n\n## [0.1.0] - 2026-11-26\n")
	git("init", "-q")
	refused("", "usage")
	refused("0.1.0", "usage")
	refused("v0.1", "usage")
	refused("v0.1.0", "git status")
	git("add", ".")
	git("commit", "-q", "-m", "x")
	refused("v0.1.1", "CHANGELOG.md has no section")
	put(".git/bin/go", "#!/bin/sh\necho builds a tool; exit 1\n")
	refused("v0.1.0", "builds a tool") // so nothing is wrong with it
	git("tag", "v0.1.0")
	refused("v0.1.0", "tagged already")
}
