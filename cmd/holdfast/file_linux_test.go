package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// The command on a folder, with processes of this machine alone.
func TestFolder(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "locks")
	j := begin(t, url, "run", "report", "--", "sh", "-c", works)
	pid := j.line()
	if o := holdfast(t, "inspect", "report", "--backend", url).want(t, 0); !strings.Contains(o.out,
		"held by") {
		t.Error(o.out)
	}
	if o := holdfast(t, "list", "--backend", url).want(t, 0); !strings.Contains(o.out, "report") {
		t.Error(o.out)
	}
	if o := holdfast(t, "run", "report", "--no-wait", "--backend", url, "--", "true").want(t,
		75); !strings.Contains(o.err, "report is held by") {
		t.Error(o.err)
	}
	began := time.Now()
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	next := begin(t, url, "run", "report", "--ttl", "24h", "--", "sh", "-c",
		"echo "+pid+"; cat /proc/"+pid+"/stat 2>/dev/null")
	if next.line() != pid {
		t.Error("the next command says something else")
	}
	// As it can only run when nobody has the first holdfast's file open, not even its command.
	if status, out, errs := next.end(); alive(pid) || status > 1 ||
		out != "" && !strings.Contains(out, ") Z ") {
		t.Errorf("the command of a holdfast that was killed was at work beside the next "+
			"one: %d, %s%s", status, out, errs)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the lock of a holdfast that was killed was free after %v, with a TTL of 30s",
			took)
	}
	_, _, _ = j.end()
	if o := holdfast(t, "list", "--backend", url).want(t, 0); strings.Contains(o.out, "report") {
		t.Errorf("left: %s", o.out)
	}
}

// What a command inherits of the shell is what it has when it writes there, and the file that keeps
// its lock is another.
func TestCommandInheritsTheShellsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := command(t, dir, "run", "k", "--backend", "file://"+filepath.Join(dir, "locks"), "sh",
		"-c", "echo hello >&3; ls -l /proc/$$/fd")
	cmd.ExtraFiles = []*os.File{log}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "/locks/processes/") {
		t.Errorf("%v; it has\n%s", err, out)
	}
	if text, err := os.ReadFile(log.Name()); err != nil || string(text) != "hello\n" {
		t.Errorf("it has %q, %v", text, err)
	}
}

// Who names no store locks in a folder of the user's, and is told so. The folder is the one that
// this user's commands really have, so the key is nobody else's.
func TestNoStoreIsNamed(t *testing.T) {
	key := "own-" + backend.NewOwner() // which may begin with -
	folder := "holdfast-" + strconv.Itoa(os.Geteuid())
	o := holdfast(t, "run", key, "--", binary, "inspect", key).want(t, 0)
	if !strings.Contains(o.out, key+" is held by holdfast") {
		t.Errorf("inspect under run says %s", o.out)
	}
	if strings.Count(o.err, "no store is named") != 2 || !strings.Contains(o.err, folder) ||
		!strings.Contains(o.err, "--backend") {
		t.Errorf("the two commands tell %s", o.err)
	}
	if o := holdfast(t, "list", key, "-q").want(t, 0); o.out+o.err != "" {
		t.Errorf("left, or told in spite of -q: %s%s", o.out, o.err)
	}
	if o := holdfast(t, "run", key, "--once-per", "1h", "--", "true").want(t,
		2); !strings.Contains(o.err, "outlive a restart") {
		t.Error(o.err)
	}
	// Which locks in the folder.
	o = holdfast(t, "run", key, "echo", "--backend=redis://u:"+secret+"@h").want(t, 0)
	if !strings.Contains(o.err, "the --backend behind echo is that command's") ||
		strings.Contains(o.err, secret) {
		t.Errorf("of a flag that is the command's it says %s", o.err)
	}
	for _, command := range []string{"doctor", "bench"} {
		if o := holdfast(t, command).want(t, 2); !strings.Contains(o.err, "give --backend URL") {
			t.Error(o.err)
		}
	}
}

// Several processes of a sale for which no store is named share a folder of the sale's own.
func TestDemoWithoutAStore(t *testing.T) {
	r := holdfast(t, "demo", "--processes=2", "--json", "--duration=60s").want(t,
		0).result(t).wantSafe(t).wantSoldOut(t)
	if !strings.HasPrefix(r.Backend, "file:///") {
		t.Errorf("on %s", r.Backend)
	}
}
