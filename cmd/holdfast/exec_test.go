//go:build unix

package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A job is the binary at work on a command that tells what becomes of it.
type job struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *bufio.Reader
	errs bytes.Buffer
}

// begin starts the binary and returns when its command has printed a line.
func begin(t *testing.T, url string, args ...string) *job {
	t.Helper()
	return beginCommand(t, command(t, t.TempDir(),
		append(args[:1:1], append([]string{"--backend", url}, args[1:]...)...)...))
}

func beginCommand(t *testing.T, cmd *exec.Cmd) *job {
	t.Helper()
	j := &job{t: t, cmd: cmd}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.cmd.Stderr = &j.errs
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.out = bufio.NewReader(out)
	return j
}

// line is the next one that the command prints.
func (j *job) line() string {
	j.t.Helper()
	line, err := j.out.ReadString('\n')
	if err != nil {
		_ = j.cmd.Wait()
		j.t.Fatalf("%v; %s", err, j.errs.String())
	}
	return strings.TrimSpace(line)
}

// end returns the exit status and what was printed until then.
func (j *job) end() (status int, out, errs string) {
	j.t.Helper()
	var rest bytes.Buffer
	_, _ = rest.ReadFrom(j.out)
	_ = j.cmd.Wait()
	return statusOf(j.cmd), rest.String(), j.errs.String()
}

// works is a command that says its pid, and what ends it.
const works = `trap 'echo told to end; exit 9' TERM; echo $$; while :; do sleep 0.01; done`

// enough is how long a hold lasts in which a command says its pid, also on a busy machine.
const enough = "3s"

// alive reports whether there is such a process that has not ended.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestRunPassesStatusAndEnvironment(t *testing.T) {
	srv := testserver.SharedRedis(t)
	for status, script := range map[int]string{
		0: "exit 0", 3: "exit 3", 75: "exit 75", 128 + 9: "kill -9 $$", // 75 is CMD's own
	} {
		o := holdfast(t, "run", "--backend", srv.URL(), t.Name(), "-E", "4", "--", "sh", "-c",
			`test "$HOLDFAST_KEY" = `+t.Name()+` && test "$HOLDFAST_TOKEN" -gt 1000000 && `+
				script).want(t, status)
		if o.out != "" || o.err != "" {
			t.Errorf("prints %s%s", o.out, o.err)
		}
	}
	if o := holdfast(t, "inspect", t.Name(), "--backend", srv.URL()).want(t,
		0); !strings.HasPrefix(o.out, t.Name()+" is free\n") {
		t.Errorf("left held: %s", o.out)
	}
}

func TestRunRefusals(t *testing.T) {
	srv := testserver.SharedRedis(t)
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"run k -- /no/such/command", 127, "cannot run /no/such/command"},
		{"run k -- no-such-command", 127, "executable file not found"},
		{"run k -- /etc/passwd", 126, "permission denied"},
		{"leader k --wait 0s true", 2, "--wait 0s"},
		{"leader", 2, "wants a KEY"},
		{"leader k --note why", 2, "--note is for a CMD"},
		{"run k -E 256 -- true", 2, "--conflict-exit-code 256"},
		{"run k -E -1 -- true", 2, "--conflict-exit-code -1"},
		{"run k", 2, "wants a KEY and a CMD"},
		{"run k --", 2, "wants a KEY and a CMD"},
		{"run k --wait 1s", 2, "wants a KEY and a CMD"},
		{"run k --nonsense true", 2, "unknown flag: --nonsense"},
		{"run k --wait soon true", 2, "soon"},
		{"run k --wait 1s --no-wait -- true", 2, "exclude each other"},
		{"run k --shared --permits 2 -- true", 2, "exclude each other"},
		{"run k --permits 0 -- true", 2, "--permits 0"},
		{"run k --weight 2 -- true", 2, "--weight is for --permits"},
		{"run k --permits 2 --weight 3 -- true", 2, "--weight 3 is not between 1 and the 2"},
		{"run k --permits 2 --weight 0 -- true", 2, "--weight 0 is not between 1 and the 2"},
		{"run k --ttl 0s -- true", 2, "--ttl 0s"},
		{"run k --kill-after 0s -- true", 2, "--kill-after 0s"},
		{"run k --once-per 1h --shared -- true", 2, "not together with --shared"},
		{"run k --once-per -1s -- true", 2, "--once-per -1s"},
		{"run k --once-per 9000h -- true", 2, "is over 8784h"},
		{"run k --on-success -- true", 2, "--on-success is for --once-per"},
		{
			"run k --note " + strings.Repeat("x", 201) + " -- true", 2,
			"for \"--note\" flag: has 201 bytes, over 200",
		},
		{"run k --output yaml -- true", 2, "neither text nor json"},
		{"release k", 2, "--token is missing"},
		{"release k --token 5 --force", 2, "exclude each other"},
		{"release k --force", 1, "k is not held; nothing was released"},
		{"release k --token 5", 1, "nothing was released"},
		{"top --interval 1ms", 2, "--interval 1ms"},
		{"wait k --timeout 0s", 2, "--timeout 0s"},
		{"inspect", 2, "an argument is missing"},
	} {
		args := strings.Fields(c.args)
		o := holdfast(t, append(args[:1:1],
			append([]string{"--backend", srv.URL()}, args[1:]...)...)...).want(t, c.status)
		if !strings.Contains(o.err, c.says) {
			t.Errorf("%s says %s", c.args, o.err)
		}
	}
	if o := holdfast(t, "doctor").want(t, 2); !strings.Contains(o.err, "HOLDFAST_BACKEND") {
		t.Error(o.err)
	}
	for _, args := range [][]string{
		{"inspect", "k"},
		{"run", "k", "--", "true"},
		{"list"},
		{"wait", "k"},
	} {
		o := holdfastWith(t, []string{"HOLDFAST_BACKEND=redis://u:" + secret + "@127.0.0.1:1"},
			args...).want(t, 77)
		if !strings.Contains(o.err, ": cannot reach redis at 127.0.0.1:1: ") ||
			strings.Contains(o.err, secret) {
			t.Errorf("%v says %s", args, o.err)
		}
	}
}

// What is behind KEY and is no flag of ours begins CMD, and all behind that is CMD's.
func TestRunTakesItsCommand(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "locks")
	for args, prints := range map[string]string{
		"run --backend URL k echo -n in":                            "in",
		"run k --backend URL -- echo in -- -q":                      "in -- -q\n",
		"run --backend URL k echo --no-wait --wait":                 "--no-wait --wait\n",
		"run -q k --backend=URL --no-wait echo -- in":               "-- in\n",
		"run --backend URL -- k echo --wait":                        "--wait\n",
		"run --backend URL -- --wait echo in":                       "in\n",
		"run --backend URL --no-color k --no-color echo --no-color": "--no-color\n",
		"leader k --backend URL -- echo -- in":                      "-- in\n",
		"leader k --backend URL echo --ttl 1s":                      "--ttl 1s\n",
	} {
		o := holdfast(t, strings.Fields(strings.ReplaceAll(args, "URL", url))...).want(t, 0)
		if o.out != prints || o.err != "" {
			t.Errorf("%s prints %q, %s; want %q", args, o.out, o.err, prints)
		}
	}
	if o := holdfast(t, "run", "k", "--help").want(t, 0); !strings.Contains(o.out,
		"holdfast run KEY [flags] [--] CMD") {
		t.Errorf("help behind KEY: %s%s", o.out, o.err)
	}
	if o := holdfast(t, "run", "k", "--backend", url, "echo", "-h").want(t, 0); o.out != "-h\n" {
		t.Errorf("help of CMD: %s", o.out)
	}
}

func TestRunCompletes(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "locks")
	j := begin(t, url, "run", "report", "sh", "-c", works)
	j.line()
	for args, want := range map[string]string{
		"run --backend URL re": "report\n:4\n", "run --wai": "--wait\thow long",
		"run k --wai": "--wait\n:4\n", "run k -q --wai": "--wait\n:4\n",
		"run k echo --wai": ":0\n", "run k /et": ":0\n",
	} {
		o := holdfast(t, append([]string{"__complete"},
			strings.Fields(strings.ReplaceAll(args, "URL", url))...)...).want(t, 0)
		if !strings.HasPrefix(o.out, want) {
			t.Errorf("%s<TAB> gives %q, want %q", args, o.out, want)
		}
	}
	_ = j.cmd.Process.Kill()
	_, _, _ = j.end()
}

// A run of the key that a run above it holds would wait for itself, unless several may hold it.
func TestRunInRun(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "locks")
	other := "file://" + filepath.Join(t.TempDir(), "others")
	run := func(key, url string, more ...string) []string {
		return append([]string{binary, "run", key, "--backend", url}, more...)
	}
	for _, flags := range [][]string{
		{"--no-wait"},
		nil,
		{"--wait=1h"},
		{"--shared"},
		{"--once-per=1h"},
		{"--wait=1s"},
	} {
		inner := append(run("k", url, flags...), "echo", "in")
		outer := run("k", url)
		if slices.Equal(flags, []string{"--wait=1s"}) {
			outer = run("k", url, "--shared")
		}
		o := holdfast(t, append(outer[1:], inner...)...).want(t, 75)
		if o.out != "" || !strings.Contains(o.err,
			"k is held by the holdfast that runs this command, token 1") ||
			strings.Contains(o.err, "waiting") {
			t.Fatalf("%v: %s%s", flags, o.out, o.err)
		}
	}
	for _, c := range []struct{ outer, inner []string }{
		{run("k", url, "--shared"), run("k", url, "--shared", "--no-wait")},
		{run("k", url, "--permits=2"), run("k", url, "--permits=2", "--no-wait")},
		{run("k", url), run("j", url, "--no-wait")},
		{run("k", url), run("k", other, "--no-wait")},
	} {
		if o := holdfast(t, append(append(c.outer[1:], c.inner...), "echo", "in")...).want(t,
			0); o.out != "in\n" {
			t.Errorf("%v in %v: %s%s", c.inner, c.outer, o.out, o.err)
		}
	}
	// The hold is over that the variables tell of: its command lives on.
	o := holdfastWith(t, []string{"HOLDFAST_KEY=k", "HOLDFAST_TOKEN=1"},
		append(run("k", url)[1:], "echo", "in")...).want(t, 0)
	if o.out != "in\n" || o.err != "" {
		t.Errorf("after the hold: %s%s", o.out, o.err)
	}
}

// A store that is dead when the command ends gets one attempt, and the status is the command's.
//
// covers: C4
func TestRunEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"redis", "rueidis"} {
		for name, fault := range map[string]func(*testserver.Server){
			"dead": (*testserver.Server).Kill, "silent": (*testserver.Server).Stop,
		} {
			srv := testserver.Redis(t)
			stop := filepath.Join(t.TempDir(), "stop")
			j := begin(t, strings.Replace(srv.URL(), "redis", scheme, 1), "run", "k", "--ttl=5m",
				"sh", "-c",
				"echo begun; while [ ! -e "+stop+" ]; do sleep 0.01; done; echo over; exit 9")
			j.line()
			fault(srv)
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			j.line()
			over := time.Now()
			status, _, errs := j.end()
			// Half a minute is how long an Unlock takes that goes on trying.
			if took := time.Since(over); status != 9 || took > 15*time.Second {
				t.Fatalf("%s, %s: it ends with %d, %v after its command", scheme, name, status,
					took)
			}
			if !strings.HasPrefix(errs,
				"holdfast: k: the store did not confirm the release: it is unknown whether the "+
					"lock is free; the lease ends in about ") ||
				strings.Count(errs, "\n") != 1 {
				t.Errorf("%s, %s: it says %s", scheme, name, errs)
			}
			if name == "silent" {
				srv.Cont()
			}
		}
	}
}

// Who does not wait, or not for long enough, is told who holds it.
func TestRunIsAlone(t *testing.T) {
	srv := testserver.SharedRedis(t)
	first := begin(t, srv.URL(), "run", t.Name(), "--", "sh", "-c", works)
	first.line()
	for _, flag := range []string{"--no-wait", "--wait=50ms"} {
		o := holdfast(t, "run", t.Name(), "--backend", srv.URL(), flag, "--", "echo", "in").want(t,
			75)
		if o.out != "" || !strings.Contains(o.err, t.Name()+" is held by sh@") ||
			!strings.Contains(o.err, "(pid "+strconv.Itoa(first.cmd.Process.Pid)+")") {
			t.Errorf("%s says %s%s", flag, o.out, o.err)
		}
	}
	second := begin(t, srv.URL(), "run", t.Name(), "--", "echo", "in")
	for o := (outcome{}); !strings.Contains(o.out, "echo@"); {
		o = holdfast(t, "inspect", t.Name(), "--backend", srv.URL())
	}
	_ = first.cmd.Process.Signal(syscall.SIGTERM)
	if status, out, errs := first.end(); status != 9 || out != "told to end\n" ||
		strings.Contains(errs, "holdfast") {
		t.Errorf("a command that was sent TERM: %d, %q, %q", status, out, errs)
	}
	if line := second.line(); line != "in" {
		t.Errorf("%q", line)
	}
	if status, _, errs := second.end(); status != 0 ||
		!strings.Contains(errs, "waiting, held by sh@") {
		t.Errorf("%d, %q", status, errs)
	}
}

// The command is told to end when somebody takes its lock, and killed if it does not.
//
// covers: G8
func TestRunLosesTheLock(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	for name, c := range map[string]struct{ script, out string }{
		"told": {works, "told to end\n"}, "killed": {strings.Replace(works, "exit 9", "", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := begin(t, srv.URL(), "run", t.Name(), "--ttl=30s",
				"--kill-after="+map[bool]string{true: "300ms", false: "10s"}[c.out == ""], "--",
				"sh", "-c", c.script)
			pid := j.line()
			o := holdfast(t, "inspect", t.Name(), "--backend", srv.URL(), "-o", "json").want(t, 0)
			token := o.out[strings.Index(o.out, `"token":`)+len(`"token":`):]
			token = token[:strings.IndexByte(token, ',')]
			o = holdfast(t, "release", t.Name(), "--token", token, "--backend", srv.URL()).want(t,
				0)
			if !strings.Contains(o.out, "taken from sh@") {
				t.Error(o.out)
			}
			status, out, errs := j.end()
			if status != 76 || !strings.HasPrefix(out, c.out) ||
				!strings.Contains(errs, "lock lost") || alive(pid) {
				t.Errorf("%d, %q, %q, alive %v", status, out, errs, alive(pid))
			}
		})
	}
}

// A store that dies under a command is told of in the words of one that was never there.
func TestStoreDiesUnderACommand(t *testing.T) {
	srv := testserver.Redis(t)
	held := begin(t, srv.URL(), "run", "k", "--", "sh", "-c", works)
	held.line()
	j := begin(t, srv.URL(), "wait", "k")
	awaitSubscriber(t, srv)
	srv.Kill()
	if status, _, errs := j.end(); status != 77 ||
		!strings.HasPrefix(errs, "holdfast wait: cannot reach redis at "+srv.Addr()+": ") ||
		strings.Count(errs, "holdfast") != 1 {
		t.Errorf("%d, %s", status, errs)
	}
	_ = held.cmd.Process.Kill()
	_, _, _ = held.end()
}

// The lock was released by somebody else, and the command ends well before anything of this process
// looks at it: that others may have worked beside it is told by the status all the same.
func TestRunLearnsOfTheLossByItsRelease(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	o := holdfast(t, "run", t.Name(), "--ttl=10m", "--backend", srv.URL(), "--",
		binary, "release", t.Name(), "--force", "--backend", srv.URL()).want(t, 76)
	if !strings.Contains(o.err, "lock lost") || !strings.Contains(o.out, "taken from ") {
		t.Errorf("says %s%s", o.out, o.err)
	}
}

// Without a token those who hold lose the lock, and no one else.
func TestReleaseByForce(t *testing.T) {
	srv := testserver.SharedRedis(t)
	for _, flags := range [][]string{{"--ttl=3s"}, {"--ttl=3s", "--shared"}} {
		key := t.Name() + strconv.Itoa(len(flags))
		var jobs []*job
		for range flags { // one, or two who share the lock
			j := begin(t, srv.URL(),
				append(append([]string{"run", key}, flags...), "--", "sh", "-c", works)...)
			j.line()
			jobs = append(jobs, j)
		}
		o := holdfast(t, "release", key, "--force", "--backend", srv.URL()).want(t, 0)
		if strings.Count(o.out, key+": taken from sh@") != len(jobs) ||
			strings.Count(o.out, "\n") != len(jobs) || o.err != "" {
			t.Errorf("%v: %s%s", flags, o.out, o.err)
		}
		for _, j := range jobs {
			if !strings.Contains(o.out,
				"(pid "+strconv.Itoa(j.cmd.Process.Pid)+"), who had held it for ") {
				t.Errorf("%v: %s", flags, o.out)
			}
			if status, _, errs := j.end(); status != 76 || !strings.Contains(errs, "lock lost") {
				t.Errorf("%v: a holder ends with %d, %s", flags, status, errs)
			}
		}
	}
	srv.MustDo("SET", t.Name(), "a peer's", "PX", "60000")
	defer srv.MustDo("DEL", t.Name())
	o := holdfast(t, "release", t.Name(), "--force", "--backend",
		srv.URL()+"?dialect=string").want(t, 1)
	if !strings.Contains(o.err, "is held by somebody without a token") || o.out != "" {
		t.Errorf("a peer's: %s%s", o.out, o.err)
	}
}

// A store that is silent: the command has ended before the lease has.
//
// covers: B1, G8
func TestRunEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	j := begin(t, srv.URL(), "run", t.Name(), "--ttl=2s", "--", "sh", "-c",
		strings.Replace(works, "exit 9", "", 1))
	pid := j.line()
	srv.Stop()
	paused := time.Now()
	defer srv.Cont()
	for alive(pid) {
		runtime.Gosched()
	}
	// A TTL after the last renewal at most.
	t.Logf("killed %v after the server stopped", time.Since(paused))
	dead := time.Now()
	status, _, errs := j.end()
	if status != 76 || !strings.Contains(errs, "not confirmed") {
		t.Errorf("%d, %q", status, errs)
	}
	// Half a minute is how long an Unlock takes that goes on trying.
	if took := time.Since(dead); took > 15*time.Second {
		t.Errorf("it ends %v after its command", took)
	}
}

func TestRunMaxHold(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	j := begin(t, srv.URL(), "run", t.Name(), "--max-hold="+enough, "--", "sh", "-c", works)
	pid := j.line()
	if status, out, errs := j.end(); status != 76 || out != "told to end\n" ||
		!strings.Contains(errs, "MaxHold") || alive(pid) {
		t.Errorf("%d, %q, %q", status, out, errs)
	}
}

// A command that ignores TERM has no more than its grace beyond --max-hold.
func TestRunMaxHoldKills(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	j := begin(t, srv.URL(), "run", t.Name(), "--max-hold="+enough, "--kill-after=100ms", "--",
		"sh", "-c", strings.Replace(works, "exit 9", "", 1))
	pid := j.line()
	if status, _, errs := j.end(); status != 76 || !strings.Contains(errs, "MaxHold") ||
		alive(pid) {
		t.Errorf("%d, %q, alive %v", status, errs, alive(pid))
	}
}

// fresh is a key that no earlier run of the test has left a mark at.
func fresh(t *testing.T) string {
	return t.Name() + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// A run counts however its command ends, unless it was cut off.
func TestRunOncePer(t *testing.T) {
	srv, key := testserver.SharedRedis(t), fresh(t)
	run := func(status int, args ...string) outcome {
		t.Helper()
		return holdfast(t, append([]string{
			"run", key, "--backend", srv.URL(), "--once-per=1h",
			"--ttl=9s",
		}, args...)...).want(t, status)
	}
	j := begin(t, srv.URL(), "run", key, "--once-per=1h", "--ttl=9s", "--", "sh", "-c", works)
	j.line()
	if o := run(75, "--no-wait", "--", "echo", "in"); o.out != "" ||
		!strings.Contains(o.err, "is held by sh@") {
		t.Errorf("%s%s", o.out, o.err)
	}
	_ = j.cmd.Process.Kill() // in the middle
	_, _, _ = j.end()
	cut := begin(t, srv.URL(), "run", key, "--once-per=1h", "--ttl=9s", "--max-hold=100ms", "--",
		"sh", "-c", works)
	if status, _, errs := cut.end(); status != 76 {
		t.Errorf("beyond --max-hold: %d, %s", status, errs)
	}
	if o := run(3, "--", "sh", "-c", "echo in; exit 3"); o.out != "in\n" {
		t.Errorf("after a crash: %s%s", o.out, o.err)
	}
	if o := run(0, "--", "echo", "in"); o.out != "" ||
		!strings.Contains(o.err, "run less than 1h0m0s ago") {
		t.Errorf("a second time: %s%s", o.out, o.err)
	}
	if o := run(0, "-q", "--no-wait", "--", "echo", "in"); o.out != "" || o.err != "" {
		t.Errorf("quietly: %s%s", o.out, o.err)
	}
}

// A store that is away for seconds when the command ends is told of the run all the same: for a
// release alone it would not be waited for.
//
// covers: C4
func TestRunOncePerCountsAfterAnOutage(t *testing.T) {
	t.Parallel()
	srv, over := testserver.Redis(t), filepath.Join(t.TempDir(), "over")
	j := begin(t, srv.URL(), "run", "k", "--once-per=1h", "--", "sh", "-c",
		"echo in; while [ ! -e "+over+" ]; do sleep 0.01; done; echo out")
	j.line()
	srv.Stop()
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.line()
	time.Sleep(2 * time.Second)
	srv.Cont()
	if status, _, errs := j.end(); status != 0 || errs != "" {
		t.Errorf("%d, %s", status, errs)
	}
	if o := holdfast(t, "run", "k", "--backend", srv.URL(), "--once-per=1h", "--", "echo",
		"in").want(t, 0); o.out != "" {
		t.Error("it ran twice within the hour")
	}
}

// With --on-success a run counts only if its command succeeds; and without, too, one that never
// began counts for nothing.
func TestRunOnSuccess(t *testing.T) {
	srv, key := testserver.SharedRedis(t), fresh(t)
	broken, over := filepath.Join(t.TempDir(), "job"), filepath.Join(t.TempDir(), "over")
	//nolint:gosec // it is to be run
	if err := os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(status int, args ...string) string {
		t.Helper()
		return holdfast(t, append([]string{"run", key, "--backend", srv.URL(), "--once-per=1h"},
			args...)...).want(t, status).out
	}
	run(127, "--", broken)
	run(3, "--on-success", "--", "sh", "-c", "exit 3")
	run(143, "--on-success", "--", "sh", "-c", "kill $$")
	first := begin(t, srv.URL(), "run", key, "--once-per=1h", "--on-success", "--", "sh", "-c",
		"echo in; while [ ! -e "+over+" ]; do sleep 0.01; done; exit 4")
	first.line()
	behind := begin(t, srv.URL(), "run", key, "--once-per=1h", "--on-success", "--", "echo",
		"behind")
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := first.end(); status != 4 {
		t.Errorf("%d, %s", status, errs)
	}
	if status, out, errs := behind.end(); status != 0 || out != "behind\n" {
		t.Errorf("behind a run that failed: %d, %q, %s", status, out, errs)
	}
	if out := run(0, "--on-success", "--", "echo", "again"); out != "" {
		t.Error("it ran again")
	}
	if out := run(0, "--", "echo", "again"); out != "" {
		t.Error("it ran again without the flag")
	}
}

// Why somebody holds is said to whoever waits, is refused or looks, on one line, whatever it has.
func TestRunNote(t *testing.T) {
	srv := testserver.SharedRedis(t)
	const note, shown = "ticket 17:\x1b[31m \n\"why\"", `ticket 17:\x1b[31m \n\"why\""`
	key := t.Name()
	j := begin(t, srv.URL(), "run", key, "--note", note, "--", "sh", "-c", works)
	j.line()
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{"run", key, "--no-wait", "--", "true"}, 75},
		{[]string{"inspect", key}, 0},
		{[]string{"list", key}, 0},
		{[]string{"release", key, "--token=1"}, 1},
	} {
		o := holdfast(t, append(c.args[:2:2],
			append([]string{"--backend", srv.URL()}, c.args[2:]...)...)...).want(t, c.status)
		if c.args[0] != "release" && !strings.Contains(o.out+o.err, shown) ||
			strings.Contains(o.out+o.err, "\x1b") {
			t.Errorf("%v says %s%s", c.args, o.out, o.err)
		}
		if c.status == 75 && !regexp.MustCompile(` held by \S+ \(pid \d+\)( for \S+)?: "`+
			regexp.QuoteMeta(shown)+`\n$`).MatchString(o.err) {
			// Or it seems to be what has lasted for so long.
			t.Errorf("the note is not last: %s", o.err)
		}
	}
	var v struct{ Holders []struct{ Note string } }
	o := holdfast(t, "inspect", key, "--backend", srv.URL(), "-o", "json").want(t, 0)
	if err := json.Unmarshal([]byte(o.out), &v); err != nil || len(v.Holders) != 1 ||
		v.Holders[0].Note != note {
		t.Errorf("%v, %s", err, o.out)
	}
	if err := j.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_, _, _ = j.end()
	ticket := strings.TrimSpace(holdfast(t, "acquire", key+"2", "--note", note, "--ttl=1m",
		"--backend", srv.URL()).want(t, 0).out)
	if o := holdfast(t, "inspect", key+"2", "--backend", srv.URL()); !strings.Contains(o.out,
		shown) {
		t.Error(o.out)
	}
	holdfast(t, "release", "--ticket", ticket, "--backend", srv.URL()).want(t, 0)
}

// covers: G6, G7
func TestCommandDiesWithRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // the page says so
	}
	srv := testserver.SharedRedis(t)
	j := begin(t, srv.URL(), "run", t.Name(), "--ttl=1s", "--", "sh", "-c", works)
	pid := j.line()
	_ = j.cmd.Process.Kill()
	// Reads to the end of what the command prints, which is closed right before it has ended.
	_, _, _ = j.end()
	await(t, "the command has ended", func() bool { return !alive(pid) })
	holdfast(t, "run", t.Name(), "--wait=30s", "--backend", srv.URL(), "--", "true").want(t, 0)
}

func TestLeader(t *testing.T) {
	srv := testserver.SharedRedis(t)
	if o := holdfast(t, "leader", t.Name(), "--backend", srv.URL()).want(t,
		0); !strings.HasPrefix(o.out, t.Name()+" is free") {
		t.Error(o.out)
	}
	// A third of it is the time to end.
	j := begin(t, srv.URL(), "leader", t.Name(), "--ttl=12s", "--", "sh", "-c", works)
	j.line()
	o := holdfast(t, "leader", t.Name(), "--backend", srv.URL(), "-o", "json").want(t, 0)
	lease := regexp.MustCompile(`"lease_left_s":([0-9.]+)`).FindStringSubmatch(o.out)
	if lease == nil {
		t.Fatal(o.out)
	} else if left, err := strconv.ParseFloat(lease[1], 64); err != nil || left > 12 {
		t.Errorf("%v s are left of 12", left)
	}
	token := o.out[strings.Index(o.out, `"token":`)+len(`"token":`):]
	holdfast(t, "release", t.Name(), "--token", token[:strings.IndexByte(token, ',')], "--backend",
		srv.URL()).want(t, 0)
	if line := j.line(); line != "told to end" {
		t.Fatalf("%q", line) // and there is no other line to wait for
	}
	j.line() // it leads again
	_ = j.cmd.Process.Signal(syscall.SIGTERM)
	if status, _, errs := j.end(); status != 9 || !strings.Contains(errs, "waiting to lead again") {
		t.Errorf("%d, %q", status, errs)
	}
}

// Who leads no more waits for as long again as --wait says, however long ago it began.
func TestLeaderWaitsAnew(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	b, err := backend.Open(t.Context(), srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const wait = 10 * time.Second
	began := time.Now()
	j := begin(t, srv.URL(), "leader", t.Name(), "--ttl=12s", "--wait="+wait.String(), "--", "sh",
		"-c", works)
	j.line()
	next := backend.Claim{
		Key: backend.Namespaced("", t.Name()), Owner: backend.NewOwner(), TTL: time.Minute,
		Queue: true, WaiterTTL: time.Minute,
	}
	if _, err := b.TryAcquire(t.Context(), next); !errors.Is(err, backend.ErrHeld) {
		t.Fatal(err)
	}
	time.Sleep(time.Until(began.Add(wait)))
	holdfast(t, "release", t.Name(), "--force", "--backend", srv.URL()).want(t, 0)
	if line := j.line(); line != "told to end" {
		t.Fatalf("%q", line)
	}
	await(t, "it waits to lead again", func() bool {
		s, err := b.Inspect(t.Context(), next.Key)
		return err == nil && len(s.Waiters) == 1
	})
	time.Sleep(2 * time.Second) // more than the least that a wait is given
	if _, err := b.Release(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	j.line() // it leads again
	_ = j.cmd.Process.Signal(syscall.SIGTERM)
	if status, _, errs := j.end(); status != 9 {
		t.Errorf("%d, %q", status, errs)
	}
}

// A command that ends with the status that a lost lock has here, as a run below it may, is not run
// again.
func TestLeaderEndsAsItsCommand(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	o := holdfast(t, "leader", "k", "--backend", "file://"+filepath.Join(t.TempDir(), "locks"),
		"sh", "-c", "test ! -e "+ran+" || exit 5; touch "+ran+"; exit 76")
	if o.want(t, 76).err != "" {
		t.Errorf("it says %s", o.err)
	}
}

// A command has the variables of its own lock, once each, and not those of a lock that the run
// itself is under.
func TestRunSetsItsOwnVariables(t *testing.T) {
	t.Parallel()
	const outer = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	o := holdfastWith(t, []string{
		"HOLDFAST_KEY=outer", "HOLDFAST_TOKEN=7", "TRACEPARENT=" + outer,
	}, "run", "inner", "--backend", "file://"+filepath.Join(t.TempDir(), "locks"), "env").want(t, 0)
	for _, name := range []string{"HOLDFAST_KEY", "HOLDFAST_TOKEN", "TRACEPARENT", "PATH"} {
		if n := strings.Count("\n"+o.out, "\n"+name+"="); n != 1 {
			t.Errorf("%d times %s in\n%s", n, name, o.out)
		}
	}
	if !strings.Contains(o.out, "HOLDFAST_KEY=inner\n") {
		t.Errorf("the command has\n%s", o.out)
	}
}

func TestListWatchAndTop(t *testing.T) {
	srv := testserver.Redis(t)
	var jobs []*job
	for _, key := range []string{"b", "a\x1b[31m"} {
		j := begin(t, srv.URL(), "run", key, "--", "sh", "-c", works)
		j.line()
		jobs = append(jobs, j)
	}
	watch := begin(t, srv.URL(), "watch", "b")
	if line := watch.line(); !strings.Contains(line, "granted  token ") ||
		!strings.Contains(line, "sh@") {
		t.Errorf("watch: %q", line)
	}
	o := holdfast(t, "list", "--backend", srv.URL()).want(t, 0)
	lines := strings.Split(o.out, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "KEY ") ||
		!strings.HasPrefix(lines[1], `"a\x1b[31m" `) || !strings.HasPrefix(lines[2], "b ") {
		t.Errorf("list:\n%s", o.out)
	}
	if o := holdfast(t, "list", "b", "--waited", "--backend", srv.URL()).want(t, 0); o.out != "" {
		t.Errorf("list of what is waited for: %s", o.out)
	}
	if o := holdfast(t, "list", "b", "-o", "json", "--backend", srv.URL()).want(t,
		0); strings.Count(o.out, "\n") != 1 ||
		!strings.HasPrefix(o.out, `{"key":"b","free":false,`) {
		t.Errorf("list as JSON: %s", o.out)
	}
	top := begin(t, srv.URL(), "top", "--interval=100ms")
	if line := top.line(); !strings.Contains(line, "2 keys, 2 holds, 0 waiters") {
		t.Errorf("top: %q", line)
	}
	for range 4 { // the table of the first look
		top.line()
	}
	if line := top.line(); !strings.HasSuffix(line, "2 keys, 2 holds, 0 waiters") {
		t.Errorf("top looks again: %q", line)
	}
	wait := begin(t, srv.URL(), "wait", "b")
	for _, j := range jobs {
		_ = j.cmd.Process.Signal(syscall.SIGTERM)
		j.end()
	}
	if status, _, errs := wait.end(); status != 0 {
		t.Errorf("wait: %d, %s", status, errs)
	}
	if line := watch.line(); !strings.Contains(line, "ended  token ") {
		t.Errorf("watch: %q", line)
	}
	for !strings.Contains(top.line(), "0 keys, 0 holds, 0 waiters") {
	}
	for _, j := range []*job{watch, top} {
		_ = j.cmd.Process.Signal(os.Interrupt)
	}
	if status, _, _ := watch.end(); status != 130 {
		t.Errorf("watch ends with %d", status)
	}
	if status, _, _ := top.end(); status != 0 {
		t.Errorf("top ends with %d", status)
	}
}
