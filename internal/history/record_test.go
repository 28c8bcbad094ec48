package history_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(workerEnv); path != "" {
		holdForEver(path)
	}
	goleak.VerifyTestMain(m)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func recorder(t *testing.T, path, process string) *history.Recorder {
	t.Helper()
	r, err := history.NewRecorder(path, process)
	check(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestRecordAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	r := recorder(t, path, "p1")
	before := history.Now()
	b, err := r.Begin(history.Event{Worker: "w", Key: "k\n\"", Token: 7, Weight: 2, Asked: before},
		before+time.Hour)
	check(t, err)
	check(t, b.End(0))
	after := history.Now()
	events, err := history.Read(path)
	check(t, err)
	if len(events) != 1 {
		t.Fatalf("events %v", events)
	}
	e := events[0]
	if e.Start < before || e.End <= e.Start || e.End > after {
		t.Errorf("%v is not within %v and %v", e, before, after)
	}
	e.Start, e.End = 0, 0
	if want := (history.Event{
		Process: "p1", Worker: "w", Key: "k\n\"", Token: 7, Weight: 2,
		Asked: before,
	}); e != want {
		t.Errorf("read %+v, want %+v", e, want)
	}
}

// TestWhenABeliefEnds covers what ends a belief, and which of several ends counts.
func TestWhenABeliefEnds(t *testing.T) {
	for name, c := range map[string]struct {
		lines string
		want  time.Duration
	}{
		"at its end": {`{"op":"begin","id":"1","at":10,"until":50} ` +
			`{"op":"end","id":"1","at":30}`, 30},
		"at its deadline, ended later": {`{"op":"begin","id":"1","at":10,"until":50} ` +
			`{"op":"end","id":"1","at":90}`, 50},
		"at a deadline known at the end": {`{"op":"begin","id":"1","at":10,"until":50} ` +
			`{"op":"end","id":"1","at":90,"until":80}`, 80},
		"at its deadline, never ended": {`{"op":"begin","id":"1","at":10,"until":50}`, 50},
		"at the renewed deadline": {`{"op":"begin","id":"1","at":10,"until":50} ` +
			`{"op":"renew","id":"1","at":20,"until":60}`, 60},
		"when its process was killed": {
			`{"op":"begin","id":"1","process":"p","at":10,"until":50} ` +
				`{"op":"killed","process":"p","at":40}`, 40,
		},
		"at its deadline, killed later": {
			`{"op":"begin","id":"1","process":"p","at":10,"until":50} ` +
				`{"op":"killed","process":"p","at":60}`, 50,
		},
		"at its end, killed between end and unlock": {
			`{"op":"begin","id":"1","process":"p","at":10,"until":50}
			{"op":"end","id":"1","process":"p","at":30} {"op":"killed","process":"p","at":40}`, 30,
		},
		"not by another's death": {`{"op":"begin","id":"1","process":"p","at":10,"until":50} ` +
			`{"op":"killed","process":"q","at":40}`, 50},
		"not by a death before it": {`{"op":"killed","process":"p","at":5} ` +
			`{"op":"begin","id":"1","process":"p","at":10,"until":50}`, 50},
		"by the first death after it": {`{"op":"killed","process":"p","at":45} ` +
			`{"op":"killed","process":"p","at":40}
			{"op":"begin","id":"1","process":"p","at":10,"until":50}`, 40},
		"lines in another order": {`{"op":"end","id":"1","at":30} ` +
			`{"op":"begin","id":"1","at":10,"until":50}`, 30},
	} {
		t.Run(name, func(t *testing.T) {
			events, err := history.Read(file(t, strings.ReplaceAll(c.lines, "} ", "}\n")+"\n"))
			check(t, err)
			if len(events) != 1 || events[0].Start != 10 || events[0].End != c.want {
				t.Errorf("read %v, want an end at %v", events, c.want)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	begin := `{"op":"begin","id":"1","at":10,"until":50}` + "\n"
	events, err := history.Read(file(t, begin+`{"op":"end","id":"1","a`))
	if err != nil || len(events) != 1 || events[0].End != 50 {
		t.Errorf("a last line cut short: %v, %v", events, err)
	}
	for text, want := range map[string]string{
		begin + "x\n":                             ":2: invalid character",
		begin + begin:                             `:2: belief 1 has a second or unknown "begin"`,
		begin + `{"op":"ended","id":"1"}` + "\n":  `"ended"`,
		`{"op":"end","id":"1","at":3}` + "\n":     "no beginning",
		`{"op":"begin","id":"1","at":"x"}` + "\n": ":1:",
	} {
		if _, err := history.Read(file(t, text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("Read of %q = %v, want %q", text, err, want)
		}
	}
	if _, err := history.Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read of no file = %v", err)
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestBeginNeedsADeadline(t *testing.T) {
	r := recorder(t, filepath.Join(t.TempDir(), "h.jsonl"), "p")
	if _, err := r.Begin(history.Event{Key: "k"}, 0); err == nil {
		t.Error("a belief without a deadline was accepted")
	}
}

// TestManyWriters records a mutex's holds, by several recorders into one file.
func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	var mu sync.Mutex
	var token uint64 // guarded by mu
	var all sync.WaitGroup
	for w := range 4 {
		r := recorder(t, path, fmt.Sprint("p", w))
		hold := func() error {
			mu.Lock()
			defer mu.Unlock()
			token++
			b, err := r.Begin(history.Event{Worker: "w", Key: "k", Token: token},
				history.At(time.Now().Add(time.Minute)))
			if err != nil {
				return err
			}
			return b.End(0)
		}
		all.Go(func() {
			for range 50 {
				if err := hold(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	events, err := history.Read(path)
	check(t, err)
	if found := history.Check(events); len(events) != 200 || found != nil {
		t.Errorf("%d events, %v", len(events), history.Join(found))
	}
}

const workerEnv = "HOLDFAST_HISTORY_WORKER"

// holdForEver is a process that begins a belief, says so, and never ends it.
func holdForEver(path string) {
	r, err := history.NewRecorder(path, "worker")
	if err == nil {
		_, err = r.Begin(history.Event{Worker: "w", Key: "k", Token: 1}, history.Now()+time.Hour)
	}
	fmt.Println("begun", err)
	select {}
}

func TestABeliefSurvivesTheDeathOfItsProcess(t *testing.T) {
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "worker.jsonl"), filepath.Join(dir, "parent.jsonl")
	r := recorder(t, ours, "parent")
	before := history.Now()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+theirs)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "begun <nil>\n" {
		t.Errorf("the worker said %q", line)
	}
	check(t, r.Killed("worker"))
	check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	after := history.Now()
	b, err := r.Begin(history.Event{Worker: "w", Key: "k", Token: 2}, after+time.Hour)
	check(t, err)
	check(t, b.End(0))

	events, err := history.Read(theirs, ours)
	check(t, err)
	if len(events) != 2 || events[0].Process != "worker" || events[0].Start < before ||
		events[0].End > after {
		t.Errorf("events %v, between %v and %v", events, before, after)
	}
	if found := history.Check(events); found != nil {
		t.Error(history.Join(found))
	}
}

func TestAt(t *testing.T) {
	before := history.Now()
	at := history.At(time.Now().Add(time.Second))
	if after := history.Now(); at < before+time.Second-time.Millisecond*100 ||
		at > after+time.Second {
		t.Errorf("At = %v, between %v and %v", at, before, after)
	}
}

func TestLog(t *testing.T) {
	var log history.Log
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() { log.Add(ev("w", uint64(i+1), time.Duration(i), time.Duration(i+1))) })
	}
	all.Wait()
	if events := log.Events(); len(events) != 10 || history.Check(events) != nil {
		t.Errorf("events %v", events)
	}
}
