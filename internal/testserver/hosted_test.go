package testserver

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestHosted(t *testing.T) {
	var srv *Server
	errOwn := errors.New("run's own")
	if err := Hosted(func(t testing.TB) error {
		srv = Redis(t)
		t.Setenv("HOLDFAST_HOSTED", "yes")
		if pong, err := srv.Do("PING"); pong != "PONG" {
			return err
		}
		return errOwn
	}); !errors.Is(err, errOwn) {
		t.Errorf("Hosted = %v, want what run returned", err)
	}
	if _, err := srv.Do("PING"); err == nil {
		t.Error("the server outlives Hosted")
	}
	if _, there := os.LookupEnv("HOLDFAST_HOSTED"); there {
		t.Error("so does a variable")
	}
}

func TestHostedSaysWhyAServerDoesNotStart(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	err := Hosted(func(t testing.TB) error { Redis(t); return nil })
	if !errors.Is(err, exec.ErrNotFound) &&
		(err == nil || !strings.Contains(err.Error(), "redis-server")) {
		t.Errorf("Hosted = %v", err)
	}
}
