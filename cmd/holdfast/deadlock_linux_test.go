package main_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// Two clients wait for each other: doctor and top say so, and list has their locks alone.
func TestDeadlockIsShown(t *testing.T) {
	url, keys := "file://"+filepath.Join(t.TempDir(), "locks"), []string{"one", "two"}
	ctx, cancel := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	defer waits.Wait()
	defer cancel()
	var clients []*locker.Client[struct{}]
	var held []*locker.Guard[struct{}]
	for _, key := range keys {
		b, err := backend.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		l, err := locker.New(b, locker.Bare, locker.Config{Service: "till"})
		if err != nil {
			t.Fatal(err)
		}
		g, err := l.Lock(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		clients, held = append(clients, l), append(held, g)
	}
	deadlocks := func() (found []finding) {
		return slices.DeleteFunc(findings(t, 0, url), func(f finding) bool {
			return f.Check != "deadlock"
		})
	}
	if found := deadlocks(); len(found) != 0 {
		t.Errorf("doctor sees %v before there is a deadlock", found)
	}
	for i, g := range held {
		waits.Go(func() {
			defer func() { _ = clients[i].Close() }()
			defer func() { _ = g.Unlock() }()
			under, stop := context.WithCancel(g.Context())
			defer stop()
			defer context.AfterFunc(ctx, stop)()
			// When the other has given up.
			if other, err := clients[i].Lock(under, keys[1-i]); err == nil {
				_ = other.Unlock()
			}
		})
	}
	await(t, "doctor tells of the deadlock", func() bool { return len(deadlocks()) > 0 })
	found := deadlocks()
	if len(found) != 1 || strings.Count(found[0].Text, `"till" on `) != 2 ||
		strings.Count(found[0].Text, "deadlock_linux_test.go:") != 2 {
		t.Errorf("doctor finds %v", found)
	}
	if o := holdfast(t, "list", "--backend", url).want(t, 0); strings.Contains(o.out, "waits-") ||
		!strings.Contains(o.out, "two") {
		t.Error(o.out)
	}
	top := begin(t, url, "top", "--interval=100ms")
	defer func() {
		_ = top.cmd.Process.Kill()
		_ = top.cmd.Wait()
	}()
	for began := time.Now(); ; {
		if line := top.line(); strings.HasPrefix(line, "deadlock: ") &&
			strings.Contains(line, `waits for "two"`) {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("top does not tell of it")
		}
	}
}
