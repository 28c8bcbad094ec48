package testserver_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TestVersion asks the program itself beside the server, so that a run against another version
// knows that it is one.
func TestVersion(t *testing.T) {
	t.Parallel()
	program := os.Getenv("HOLDFAST_REDIS_SERVER")
	if program == "" {
		program = "redis-server"
	}
	says, err := exec.Command(program, "--version").Output() // as in "Valkey server v=8.0.1 sha=…"
	if err != nil {
		t.Fatal(err)
	}
	v := testserver.SharedRedis(t).Version()
	product, number, _ := strings.Cut(strings.ToLower(string(says)), " server v=")
	if want := product + " " + number; !strings.HasPrefix(want, v.String()+".") {
		t.Errorf("Version = %s, the program says %s", v, says)
	}
}

func TestAtLeast(t *testing.T) {
	t.Parallel()
	v := testserver.Version{Product: "redis", Major: 7, Minor: 2}
	if !v.AtLeast(6, 9) || !v.AtLeast(7, 2) || v.AtLeast(7, 3) || v.AtLeast(8, 0) {
		t.Errorf("%s is not where it should be among versions", v)
	}
}

func TestOnlyWhere(t *testing.T) {
	t.Parallel()
	server := testserver.SharedRedis(t)
	t.Run("skipped", func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				t.Errorf("the test went on")
			}
		}()
		testserver.OnlyWhere(t, server, func(testserver.Version) bool {
			return false
		}, "this is the test of it")
	})
	testserver.OnlyWhere(t, server, func(v testserver.Version) bool {
		return v.AtLeast(6, 0)
	}, "all we support")
}
