package fencing

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// The program of the cookbook that needs a driver, run as the page shows it. (That it stands on the
// page is seen to by TestGoSnippets of internal/repo, which finds it in ./flashsale.)
func TestCookbook(t *testing.T) {
	page, err := os.ReadFile("../../docs/cookbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## A flash sale with an SQL fence\n")
	_, session, _ := strings.Cut(section, "\n```text\n$ ./app\n")
	want, _, found := strings.Cut(session, "```\n")
	if !found {
		t.Fatal("the page has no such recipe")
	}
	app := filepath.Join(t.TempDir(), "app")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", app,
		"./flashsale").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sale := exec.CommandContext(t.Context(), app)
	sale.Dir, sale.Env = filepath.Dir(app), append(os.Environ(),
		"HOLDFAST_BACKEND=redis://"+testserver.Redis(t).Addr())
	if out, err := sale.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%v, printed %q, not %q", err, out, want)
	}
}
