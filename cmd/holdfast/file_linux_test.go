package main_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The command on a folder, with processes of this machine alone.
func TestFolder(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "locks")
	j := begin(t, url, "run", "report", "--", "sh", "-c", works)
	pid := j.line()
	if o := holdfast(t, "inspect", "report", "--backend", url).want(t, 0); !strings.Contains(o.out, "held by") {
		t.Error(o.out)
	}
	if o := holdfast(t, "list", "--backend", url).want(t, 0); !strings.Contains(o.out, "report") {
		t.Error(o.out)
	}
	if o := holdfast(t, "run", "report", "--no-wait", "--backend", url, "--", "true").want(t, 75); !strings.Contains(o.err, "report is held by") {
		t.Error(o.err)
	}
	began := time.Now()
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	next := begin(t, url, "run", "report", "--ttl", "24h", "--", "sh", "-c", "echo "+pid+"; cat /proc/"+pid+"/stat 2>/dev/null")
	if next.line() != pid {
		t.Error("the next command says something else")
	}
	// As it can only run when nobody has the first holdfast's file open, not even its command.
	if status, out, errs := next.end(); alive(pid) || status > 1 || out != "" && !strings.Contains(out, ") Z ") {
		t.Errorf("the command of a holdfast that was killed was at work beside the next one: %d, %s%s", status, out, errs)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the lock of a holdfast that was killed was free after %v, with a TTL of 30s", took)
	}
	_, _, _ = j.end()
	if o := holdfast(t, "list", "--backend", url).want(t, 0); strings.Contains(o.out, "report") {
		t.Errorf("left: %s", o.out)
	}
}

func TestDemoInAFolder(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "locks")
	holdfast(t, "demo", "--processes=2", "--json", "--duration=60s", "--backend", url).want(t, 0).result(t).wantSafe(t).wantSoldOut(t)
}
