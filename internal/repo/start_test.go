package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// A program pays for what it imports each time it starts, as a cron job does: what is made before
// main are kilobytes. Bytes are counted, as they are the same on every machine.
func TestStartIsCheap(t *testing.T) {
	const most = 10_000 // bytes, of all packages of this module together
	for _, imported := range []string{
		"redisbackend", "rueidisbackend", "etcdbackend", "redlock", "backend/filebackend",
		"backend/pgbackend", "locker/config", "tracing/contention",
	} {
		t.Run(imported, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
			text := "package main\n\nimport _ \"github.com/holdfast-go/holdfast/" + imported +
				"\"\n\nfunc main() {}\n"
			if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			build := exec.CommandContext(t.Context(), "go", "build", "-o", program, source)
			build.Dir = "../.."
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			start := exec.CommandContext(t.Context(), program)
			start.Env = append(os.Environ(), "GODEBUG=inittrace=1")
			out, err := start.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			bytes := 0
			lines := regexp.MustCompile(
				`(?m)^init github\.com/holdfast-go/holdfast/.* clock, (\d+) bytes`).FindAllSubmatch(
				out, -1)
			for _, line := range lines {
				n, _ := strconv.Atoi(string(line[1]))
				bytes += n
			}
			if len(lines) == 0 || bytes > most {
				t.Errorf("%d packages make %d bytes before main, want at most %d:\n%s", len(lines),
					bytes, most, out)
			}
		})
	}
}
