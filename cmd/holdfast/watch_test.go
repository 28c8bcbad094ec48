//go:build unix

package main_test

import (
	"bufio"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/backend/filebackend"
	_ "github.com/holdfast-go/holdfast/etcdbackend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	_ "github.com/holdfast-go/holdfast/redisbackend"
	_ "github.com/holdfast-go/holdfast/redlock"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
)

// A watched event is a line of watch as JSON.
type watched struct {
	Event  string `json:"event"`
	Holder struct {
		Token uint64 `json:"token"`
	} `json:"holder"`
}

func (j *job) event() (w watched) {
	j.t.Helper()
	line := j.line()
	if err := json.Unmarshal([]byte(line), &w); err != nil {
		j.t.Fatalf("%q: %v", line, err)
	}
	return w
}

// Six holds are six, each begun and ended once, on each store.
func TestWatchPrintsEveryHold(t *testing.T) {
	srv := testserver.SharedRedis(t)
	nodes := testserver.Redises(t, 3)
	quorum := "redlock://?"
	for _, n := range nodes {
		quorum += "&node=redis%3A%2F%2F" + n.Addr()
	}
	urls := map[string]string{
		"redis": srv.URL(), "rueidis": strings.Replace(srv.URL(), "redis", "rueidis", 1),
		"dialect": srv.URL() + "?dialect=string&prefix=" +
			t.Name(), "quorum": strings.Replace(quorum, "?&", "?", 1),
		"etcd": strings.Replace(testserver.Etcd(t).URL(), "http", "etcd", 1),
	}
	if runtime.GOOS == "linux" {
		urls["file"] = "file://" + t.TempDir()
	}
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := backend.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			watch := begin(t, url, "watch", t.Name(), "-o", "json")
			if w := watch.event(); w.Event != "free" {
				t.Fatalf("first %+v", w)
			}
			for range 6 {
				c := backend.Claim{
					Key: backend.Namespaced("", t.Name()), Owner: backend.NewOwner(),
					TTL: time.Minute,
				}
				g, err := b.TryAcquire(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				for _, event := range []string{"granted", "ended"} {
					if w := watch.event(); w.Event != event || w.Holder.Token != g.Token {
						t.Fatalf("%+v, want %s of %d", w, event, g.Token)
					}
					// A hold lasts until it was seen: how short one may be is the suite's to try.
					if event == "granted" {
						if _, err := b.Release(t.Context(), c); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			_ = watch.cmd.Process.Signal(os.Interrupt)
			if status, rest, _ := watch.end(); status != 130 || rest != "" {
				t.Errorf("%d, %q", status, rest)
			}
		})
	}
}

// A server that is restarted is watched on, and the gap is told of.
func TestWatchGoesOnAfterARestart(t *testing.T) {
	srv := testserver.Redis(t)
	watch := begin(t, srv.URL(), "watch", "k")
	watch.line()
	srv.Restart()
	for i := range 2 {
		job := begin(t, srv.URL(), "run", "k", "--", "sh", "-c", works)
		job.line()
		if line := watch.line(); !strings.Contains(line, "granted  token ") {
			t.Errorf("hold %d: %q", i+1, line)
		}
		if i == 0 {
			_ = job.cmd.Process.Kill()
			srv.Restart() // which forgets the hold
			if line := watch.line(); !strings.Contains(line, "ended  token ") {
				t.Error(line)
			}
			_, _, _ = job.end()
			continue
		}
		_ = job.cmd.Process.Signal(os.Interrupt)
		_, _, _ = job.end()
	}
	_ = watch.cmd.Process.Signal(os.Interrupt)
	status, _, errs := watch.end()
	if status != 130 || strings.Contains(errs, "cannot reach") &&
		!strings.Contains(errs, "goes on when the store answers") {
		t.Errorf("%d, %s", status, errs)
	}
}

// A store that is away is told of once, and is waited for.
func TestStoreIsAway(t *testing.T) {
	for args, looks := range map[string]string{
		"watch k -q":              "free",
		"top --interval=100ms -q": "0 keys",
	} {
		srv := testserver.Redis(t)
		cmd := command(t, t.TempDir(), append(strings.Fields(args), "--backend", srv.URL())...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = cmd.Stdout // the same pipe
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		j := &job{t: t, cmd: cmd, out: bufio.NewReader(out)}
		if line := j.line(); !strings.Contains(line, looks) {
			t.Errorf("%s: first %q", args, line)
		}
		srv.Kill()
		line := j.line()
		// looks of before.
		for args != "watch k -q" && (line == "" || strings.Contains(line, looks)) {
			line = j.line()
		}
		if !strings.Contains(line, "cannot reach redis at "+srv.Addr()) ||
			!strings.HasSuffix(line, "; it goes on when the store answers") {
			t.Errorf("%s: %q", args, line)
		}
		if srv.Restart(); args != "watch k -q" { // of which there is no change to watch
			if line := j.line(); !strings.Contains(line, looks) {
				t.Errorf("%s: behind an outage %q", args, line)
			}
		}
		_ = cmd.Process.Signal(os.Interrupt)
		if _, rest, _ := j.end(); strings.Contains(rest, "cannot reach") {
			t.Errorf("%s: %s", args, rest)
		}
	}
}

// The end of a wait is told as such, also by a request that ends a moment before the wait does.
func TestWaitEndsInTime(t *testing.T) {
	srv := testserver.SharedRedis(t)
	held := begin(t, srv.URL(), "run", t.Name(), "--", "sh", "-c", works)
	held.line()
	for range 10 {
		holdfast(t, "wait", t.Name(), "--timeout=50ms", "--backend", srv.URL()).want(t, 75)
	}
	_ = held.cmd.Process.Signal(os.Interrupt)
	_, _, _ = held.end()
}
