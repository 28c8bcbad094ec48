//go:build unix

package main_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// interrupted wants j to end at an interruption, and to say so and nothing else.
func (j *job) interrupted() {
	j.t.Helper()
	_ = j.cmd.Process.Signal(os.Interrupt)
	got, out, errs := j.end()
	said := ""
	for line := range strings.Lines(errs) {
		if !strings.Contains(line, "waiting, held by") {
			said += line
		}
	}
	want := "holdfast " + j.cmd.Args[1] + ": interrupted\n"
	if got != 130 || said != want || out != "" {
		j.t.Errorf("%v: interrupted, it ends with %d and says %q%s; want 130 and %q",
			j.cmd.Args[1:], got, said, out, want)
	}
}

// awaitSubscriber returns when somebody waits for messages of the server, or for what it tells of
// changes.
func awaitSubscriber(t *testing.T, srv *testserver.Server) {
	t.Helper()
	for channels, clients := "[]", "tracking_clients:0\r"; channels == "[]" &&
		strings.Contains(clients, "tracking_clients:0\r"); {
		reply, err := srv.Do("PUBSUB", "CHANNELS")
		if err != nil {
			t.Fatal(err)
		}
		channels, clients = fmt.Sprint(reply), srv.MustDo("INFO", "clients")
	}
}

// Ctrl-C ends a command while it waits for a lock, and leaves nobody in the queue.
func TestInterruptedWaiting(t *testing.T) {
	srv := testserver.Redis(t)
	held := begin(t, srv.URL(), "run", "k", "--", "sh", "-c", works)
	held.line()
	for _, args := range []string{
		"run k -- true", "run k --wait=1h -- true",
		"run k --once-per=1h -- true", "leader k -- true", "wait k", "wait k --timeout=1h",
		"watch k",
	} {
		j := begin(t, srv.URL(), strings.Fields(args)...)
		if j.cmd.Args[1] == "watch" {
			j.line() // who holds
		}
		awaitSubscriber(t, srv)
		j.interrupted()
		if o := holdfast(t, "inspect", "k", "--backend", srv.URL()).want(t,
			0); strings.Contains(o.out, "waits") {
			t.Errorf("%s leaves somebody in the queue: %s", args, o.out)
		}
	}
	_ = held.cmd.Process.Kill()
	_, _, _ = held.end()
}

// Ctrl-C ends a command whose store does not answer.
func TestInterruptedOpening(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"inspect k", "list", "top", "watch k", "wait k", "run k -- true", "leader k -- true",
		"leader k", "release k --token=5", "doctor", "bench", "demo",
		"rueidis inspect k", "rueidis doctor", "etcd inspect k", "etcd doctor",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			scheme, words := "redis", strings.Fields(args)
			if len(words) > 1 && (words[0] == "rueidis" || words[0] == "etcd") {
				scheme, words = words[0], words[1:]
			}
			j := begin(t, scheme+"://"+silent.Addr().String(), words...)
			c, err := silent.Accept()
			if err != nil {
				t.Fatal(err)
			}
			j.interrupted()
			_ = c.Close()
			_ = silent.Close()
		})
	}
}
