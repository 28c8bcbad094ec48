package main_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	holdfastmain "github.com/holdfast-go/holdfast/cmd/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A session is somebody at a shell on a terminal, with $LOCK in front of commands: holdfast run, or
// flock.
type session struct {
	t      *testing.T
	screen *os.File
	view   *holdfastmain.Viewer
	shell  *exec.Cmd
	dir    string
	url    string // the store
	key    string
	lock   []string
	flock  bool
}

var sessions atomic.Int64

// shortTTL is that of locks which a test waits for the end of; others have a long one, as the
// machine may be busy.
const shortTTL = 4 * time.Second

// work is a command that is at work until work is over: it tells its number, and ends with 3. It is
// for bash and starts no other program: a dash that is stopped between vfork and exec does not
// stop.
const work = `echo $$ >begun; while [ -e go ]; do read -t 0.02 _ <>idle; done; exit 3`

func newSession(t *testing.T, url string, flock bool, ttl time.Duration) *session {
	t.Helper()
	s := &session{
		t: t, dir: t.TempDir(), flock: flock, url: url,
		key: fmt.Sprintf("situation-%d-%d", os.Getpid(), sessions.Add(1)),
	}
	s.lock = []string{binary, "run", s.key, "--ttl", ttl.String()}
	if flock {
		s.lock = []string{"flock", "lock"}
	}
	s.write("go", "")
	s.write("work", work)
	s.write("sleep", "echo $$ >begun; exec sleep 1h")
	if err := syscall.Mkfifo(filepath.Join(s.dir, "idle"), 0o600); err != nil {
		t.Fatal(err)
	}
	screen, tty := holdfastmain.OpenTerminal(t)
	s.screen, s.view = screen, holdfastmain.View(t, screen)
	s.shell = exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "--noediting", "-i")
	s.shell.Env = slices.Concat(command(t, s.dir).Env, []string{
		"LOCK=" + strings.Join(s.lock, " "),
		"HOLDFAST_BACKEND=" + url, "PS1=$ ", "TERM=dumb",
	})
	s.shell.Dir, s.shell.Stdin, s.shell.Stdout, s.shell.Stderr = s.dir, tty, tty, tty
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.shell.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	t.Cleanup(func() {
		_ = os.Remove(filepath.Join(s.dir, "go")) // all work is over
		_ = screen.Close()                        // and all who read from the terminal
		s.killAll()
		_ = s.shell.Wait()
	})
	s.types("stty -echo; echo rea''dy")
	s.view.Await("ready\r\n")
	return s
}

// killAll kills what is left of the session, also by a test that fails.
func (s *session) killAll() {
	for _, pid := range processes(func(_, session string) bool {
		return session == strconv.Itoa(s.shell.Process.Pid)
	}) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processes are those with such a parent and session.
func processes(which func(parent, session string) bool) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		stat, _ := os.ReadFile(path)
		pid, _, _ := strings.Cut(string(stat), " ")
		_, after, _ := strings.Cut(string(stat), ") ")
		n, err := strconv.Atoi(pid)
		// state, parent, group, session.
		if f := strings.Fields(after); err == nil && len(f) > 3 && which(f[1], f[3]) {
			pids = append(pids, n)
		}
	}
	return pids
}

// types types a line.
func (s *session) types(line string) { s.view.Types(line + "\n") }

// ends wants the line that was typed to end with a status.
func (s *session) ends(status int) {
	s.t.Helper()
	s.types("echo status $?")
	s.view.Await("status ")
	if got := s.view.Until("\r\n"); got != strconv.Itoa(status) {
		s.t.Fatalf("it ends with %s, want %d", got, status)
	}
}

func (s *session) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// begun returns the number of the work that has begun.
func (s *session) begun() (pid string) {
	s.t.Helper()
	return s.file("begun")
}

// file is the first line of a file that is to be there.
func (s *session) file(name string) (line string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	await(s.t, name+" is there", func() bool {
		text, err := os.ReadFile(path)
		line = strings.TrimSpace(string(text))
		return err == nil && bytes.HasSuffix(text, []byte("\n"))
	})
	_ = os.Remove(path)
	return line
}

// over lets all work end.
func (s *session) over() {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, "go")); err != nil {
		s.t.Fatal(err)
	}
}

// free reports whether the lock is to be had.
func (s *session) free() bool {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.lock[0], "-n", "lock", "true")
	if !s.flock {
		cmd = exec.CommandContext(s.t.Context(), binary, "run", s.key, "--no-wait", "-E", "1",
			"true")
	}
	cmd.Dir, cmd.Env = s.dir, s.shell.Env
	out, err := cmd.CombinedOutput()
	if status := statusOf(cmd); status > 1 {
		s.t.Fatalf("%v: %s", err, out)
	}
	return err == nil
}

// isFree waits until the lock is to be had.
func (s *session) isFree() {
	s.t.Helper()
	await(s.t, "the lock is free", s.free)
}

// isHeld wants the lock to be held.
func (s *session) isHeld() {
	s.t.Helper()
	if s.free() {
		s.t.Error("the lock is free")
	}
}

// staysHeld wants the lock to be held for longer than it is without renewals.
func (s *session) staysHeld() {
	s.t.Helper()
	for until := time.Now().Add(shortTTL * 3 / 2); time.Now().Before(until); time.Sleep(
		shortTTL / 10) {
		if s.free() {
			s.t.Fatal("the lock is free, and its command at work")
		}
	}
}

// Ctrl-Z stops top, which gives the terminal back, and fg goes on with it.
func TestTopStops(t *testing.T) {
	srv := testserver.SharedRedis(t)
	s := newSession(t, srv.URL(), false, time.Hour)
	s.types("TERM=xterm " + binary + " top")
	s.view.Await("q quit")
	s.view.Types("\x1a")
	s.view.Await("\x1b[?1049l")
	s.view.Await("Stopped")
	s.types("fg")
	s.view.Await("\x1b[?1049h")
	s.view.Await("q quit")
	s.view.Types("q")
	s.view.Await("\x1b[?1049l")
	s.view.Await("$ ") // before which it might read what is typed
	s.ends(0)
}

// isDead waits until a process has ended.
func (s *session) isDead(pid string) {
	s.t.Helper()
	await(s.t, "process "+pid+" has ended", func() bool { return !alive(pid) })
}

func (s *session) isAlive(pid string) {
	s.t.Helper()
	if !alive(pid) {
		s.t.Errorf("process %s has ended", pid)
	}
}

// interrupted types Ctrl-C when the work of some lines has begun, and wants nothing behind it to be
// done.
func (s *session) interrupted(lines string) {
	s.t.Helper()
	s.types(lines)
	s.begun()
	s.types("\x03")
	s.ends(130)
	s.isFree()
	s.noNext()
}

// noNext wants a script or a loop to have ended with its command.
func (s *session) noNext() {
	s.t.Helper()
	if _, err := os.Stat(filepath.Join(s.dir, "next")); err == nil {
		s.t.Error("what is behind the command is done")
	}
}

// situations are the rows of the table in docs/command.md.
var situations = []struct {
	name string
	ttl  time.Duration
	do   func(s *session)
}{
	{"in the foreground", time.Hour, func(s *session) {
		s.types("$LOCK sh -c 'echo in; exit 3'")
		s.view.Await("in\r\n")
		s.ends(3)
	}},
	{"CMD asks whether it is in front", time.Hour, func(s *session) {
		// Its group, and the terminal's.
		s.write("front", `set -- $(sed 's/.*) //' /proc/self/stat); [ $3 = $6 ]`)
		s.types("$LOCK sh -c 'until sh front; do sleep 0.02; done; exit 3'")
		s.ends(3)
		s.types("$LOCK bash -c 'until sh front; do sleep 0.02; done; . ./work'")
		s.begun()
		s.types("\x1a")
		s.view.Await("Stopped")
		s.types("fg")
		s.over()
		s.ends(3)
		s.types("$LOCK sh front | cat; echo \"status ${PIPESTATUS[0]}.\"")
		s.view.Await(fmt.Sprintf("status %d.\r\n", map[bool]int{true: 0, false: 1}[s.flock]))
	}},
	{"CMD asks on the terminal", time.Hour, func(s *session) {
		s.types("echo data | $LOCK sh -c 'read d; read x </dev/tty; echo got $d $x; exit 3'")
		s.types("typed")
		s.view.Await("got data typed\r\n")
		s.ends(3)
	}},
	{"… in the background", time.Hour, func(s *session) {
		s.types("$LOCK sh -c 'read x </dev/tty; echo got $x; exit 3' &")
		for shown := false; !shown; { // a shell tells of a job before a prompt
			s.types("jobs; echo lis''ted")
			shown = strings.Contains(s.view.Until("listed\r\n"), "Stopped")
		}
		s.types("fg")
		s.types("typed")
		s.view.Await("got typed\r\n")
		s.ends(3)
	}},
	{"… and nobody can give it", time.Hour, func(s *session) {
		s.types("($LOCK sh -c 'echo $$ >begun; read x </dev/tty; exit 3' &)")
		s.isDead(s.begun())
		s.isFree()
	}},
	{"a pipe to a pager", shortTTL, func(s *session) {
		s.write("pager", `read key </dev/tty; echo key $key; cat >/dev/null; exit 5`)
		s.types("$LOCK bash work | sh pager")
		pid := s.begun()
		s.staysHeld()
		s.isAlive(pid)
		s.types("q")
		s.view.Await("key q\r\n")
		s.over()
		s.ends(5)
		s.isFree()
	}},
	{"… where CMD asks too", time.Hour, func(s *session) {
		s.write("pager", `while [ ! -e begun ]; do sleep 0.02; done; read key </dev/tty; echo `+
			`key $key; touch key; cat >/dev/null; exit 5`)
		s.types("$LOCK sh -c 'read x </dev/tty; while [ ! -e key ]; do touch begun; done; read y " +
			"</dev/tty; echo $x $y >got' | sh pager")
		s.types("first")
		s.types("second")
		s.view.Await("key second\r\n")
		s.types("third")
		if got := s.file("got"); got != "first third" {
			s.t.Errorf("CMD got %s", got)
		}
		s.ends(5)
		s.isFree()
	}},
	{"Ctrl-C in a script", time.Hour, func(s *session) {
		s.write("script", "$LOCK bash work\necho NEXT >next\n")
		s.interrupted("sh script")
		s.interrupted("bash script")
	}},
	{"… where CMD has the terminal", time.Hour, func(s *session) {
		s.write("script", "$LOCK bash -c 'read x </dev/tty; . ./work'\necho NEXT >next\n")
		s.interrupted("sh script\ntyped")
		s.interrupted("bash script\ntyped")
	}},
	{"… in a loop", time.Hour, func(s *session) {
		s.interrupted("for i in 1 2 3; do $LOCK bash work; echo NEXT >next; done")
	}},
	{"… while it waits", time.Hour, func(s *session) {
		s.types("$LOCK bash work &")
		s.begun()
		s.write("script", "echo $$ >waits; $LOCK true\necho NEXT >next\n")
		s.types("sh script")
		if !s.flock {
			s.view.Await("waiting, held by")
		} else {
			s.file("waits")
		}
		s.types("\x03")
		s.ends(130)
		s.over()
		s.types("wait; echo o''ver")
		s.view.Await("over\r\n")
		s.noNext()
	}},
	{"… and CMD ignores it", time.Hour, func(s *session) {
		s.types("$LOCK bash -c 'trap \"\" INT; . ./work'")
		pid := s.begun()
		s.types("\x03\x03")
		s.isHeld()
		s.isAlive(pid)
		s.over()
		s.ends(map[bool]int{true: 130, false: 3}[s.flock])
		s.isFree()
	}},
	{"… and CMD does its own", time.Hour, func(s *session) {
		s.types("$LOCK bash -c 'trap \"echo told; exit 7\" INT; . ./work'")
		s.begun()
		s.types("\x03")
		s.view.Await("told\r\n")
		s.ends(map[bool]int{true: 130, false: 7}[s.flock])
	}},
	{`Ctrl-\`, time.Hour, func(s *session) {
		s.types("$LOCK sh sleep") // bash ignores it
		s.begun()
		s.types("\x1c")
		s.ends(131)
		s.isFree()
	}},
	{"Ctrl-Z and fg", time.Hour, func(s *session) {
		s.types("$LOCK bash work")
		pid := s.begun()
		s.types("\x1a")
		s.view.Await("Stopped")
		s.types("fg")
		await(s.t, "the job goes on", func() bool { return !strings.Contains(stateOf(pid), "T") })
		s.over()
		s.ends(3)
		s.isFree()
	}},
	{"Ctrl-Z, and fg after a TTL", shortTTL, func(s *session) {
		s.types("$LOCK bash work")
		pid := s.begun()
		s.types("\x1a")
		s.view.Await("Stopped")
		if s.flock {
			s.staysHeld()
			s.types("fg")
			s.over()
			s.ends(3)
			return
		}
		for !s.free() { // then CMD has been killed: nobody has stepped in before
		}
		if alive(pid) {
			s.t.Error("the lock is free, and CMD could go on")
		}
		s.types("fg")
		s.view.Await("the command was ended")
		s.ends(76)
	}},
	{"the terminal is closed", time.Hour, func(s *session) {
		s.types("$LOCK bash -c 'echo $$ >begun; read x </dev/tty; . ./work'")
		pid := s.begun()
		_ = s.screen.Close()
		s.isDead(pid)
		s.isFree()
	}},
	{"… on a stopped job", time.Hour, func(s *session) {
		s.types("$LOCK bash work")
		pid := s.begun()
		s.types("\x1a")
		s.view.Await("Stopped")
		_ = s.screen.Close()
		s.isDead(pid)
		s.isFree()
	}},
	{"`nohup … &`", time.Hour, func(s *session) {
		s.types("nohup $LOCK bash work >/dev/null 2>&1 &")
		pid := s.begun()
		_ = s.screen.Close()
		_ = s.shell.Wait()
		s.isAlive(pid)
		s.isHeld()
		s.over()
		s.isDead(pid)
		s.isFree()
	}},
	{"`&` in a script, and Ctrl-C or Ctrl-\\", time.Hour, func(s *session) {
		s.write("script", "$LOCK sh sleep &\nwait\n")
		for key, status := range map[string]int{"\x03": 130, "\x1c": 131} {
			s.types("sh script")
			pid := s.begun()
			s.types(key)
			s.ends(status)
			s.isAlive(pid)
			s.isHeld()
			s.types("kill " + pid)
			s.isDead(pid)
			s.isFree()
		}
	}},
	{"`$(…)`", time.Hour, func(s *session) {
		s.types("x=$($LOCK sh -c 'echo in; exit 3'); echo \"x=$x $?\"")
		s.view.Await("x=in 3\r\n")
	}},
	{"`setsid`", time.Hour, func(s *session) {
		s.types("setsid -w $LOCK sh -c 'read x </dev/tty || exit 3'")
		s.ends(3)
	}},
	{"`timeout`", time.Hour, func(s *session) {
		s.types("timeout 1h $LOCK bash work &")
		s.begun()
		s.types("kill -ALRM $!; wait $!") // the hour is over
		s.ends(124)
		s.isFree()
	}},
	{"`xargs -P`", time.Hour, func(s *session) {
		s.write("alone", "mkdir alone.d || echo BESIDE; sleep 0.05; rmdir alone.d; echo "+
			"done; exit 0\n")
		s.types("seq 4 | xargs -P 4 -I N $LOCK sh alone >out 2>&1; cat out; echo all")
		if out := s.view.Until("all\r\n"); strings.Count(out, "done") != 4 ||
			strings.Contains(out, "BESIDE") {
			s.t.Error(out)
		}
	}},
	{"`make -j`", time.Hour, func(s *session) {
		s.write("alone", "mkdir alone.d || echo BESIDE; sleep 0.05; rmdir alone.d; echo "+
			"done; exit 0\n")
		s.write("Makefile", "all: a b c d\na b c d:\n\t@$(LOCK) sh alone 2>&1\n.PHONY: "+
			"all a b c d\n")
		s.types("make -j 4; echo all")
		if out := s.view.Until("all\r\n"); strings.Count(out, "done") != 4 ||
			strings.Contains(out, "BESIDE") {
			s.t.Error(out)
		}
	}},
	{"cron", time.Hour, func(s *session) {
		cmd := exec.CommandContext(s.t.Context(), "sh", "-c",
			strings.Join(s.lock, " ")+" sh -c 'read x; read y </dev/tty || exit 3'")
		cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Setsid: true}
		cmd.Env = slices.DeleteFunc(slices.Clone(s.shell.Env), func(v string) bool {
			return !strings.HasPrefix(v, "HOLDFAST_")
		})
		cmd.Env = append(cmd.Env, "PATH=/usr/bin:/bin")
		if out, err := cmd.CombinedOutput(); statusOf(cmd) != 3 ||
			strings.Contains(string(out), "holdfast") {
			s.t.Errorf("%v: %s", err, out)
		}
		s.isFree()
	}},
	{"TERM or HUP to it", time.Hour, func(s *session) {
		for sig, status := range map[string]int{"TERM": 143, "HUP": 129} {
			s.types("$LOCK bash -c 'trap \"exit 7\" " + sig + "; . ./work' & echo pid $!")
			pid := s.begun()
			s.types("kill -" + sig + " $!; wait $!")
			if !s.flock {
				s.ends(7)
				s.isDead(pid)
				s.isFree()
				continue
			}
			s.ends(status)
			s.isAlive(pid)
			s.isHeld()
			s.over()
			s.isFree()
			s.write("go", "")
		}
	}},
	// A tenth of a third of the TTL is what the deadman may be late by, on a busy machine.
	{"STOP to it, for a TTL", 3 * shortTTL, func(s *session) {
		s.types("$LOCK bash work &")
		pid := s.begun()
		s.types("kill -STOP $!")
		if s.flock {
			s.staysHeld()
			s.isAlive(pid)
			s.types("fg")
			s.over()
			s.ends(3)
			return
		}
		for !s.free() {
		}
		if alive(pid) {
			s.t.Error("the lock is free, and CMD at work")
		}
		s.types("fg")
		s.ends(76)
	}},
	{"KILL to it", shortTTL, func(s *session) {
		s.write("two", "while [ -e go ]; do read -t 0.02 _ <>idle; done & echo $! >other; . ./work")
		s.types("$LOCK bash two &")
		pid := s.begun()
		other := s.file("other")
		s.types("kill -KILL $!")
		if s.flock {
			s.types("wait $!")
			s.ends(137)
			s.isAlive(pid)
			s.isHeld()
			return
		}
		s.isDead(pid)
		s.isDead(other)
		s.isFree()
	}},
	{"STOP to CMD", shortTTL, func(s *session) {
		s.types("$LOCK bash work &")
		pid := s.begun()
		s.types("kill -STOP " + pid)
		s.staysHeld()
		s.types("kill -CONT " + pid)
		s.over()
		s.types("wait $!")
		s.ends(3)
	}},
	{"CMD leaves a process behind", time.Hour, func(s *session) {
		s.types("$LOCK bash -c 'bash work & exit 5'")
		pid := s.begun()
		s.ends(5)
		if s.flock {
			s.isHeld()
		} else {
			s.isFree()
		}
		s.isAlive(pid)
	}},
	{"another holds it", time.Hour, func(s *session) {
		s.types("$LOCK bash work &")
		s.begun()
		s.types(strings.Join(append([]string{s.lock[0]}, map[bool][]string{
			true: {"-n", "-E", "9", "lock"}, false: {"run", s.key, "--no-wait", "-E", "9"},
		}[s.flock]...), " ") + " true")
		s.ends(9)
	}},
}

// stateOf is a letter for what a process does.
func stateOf(pid string) string {
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, state, _ := strings.Cut(string(stat), ") ")
	state, _, _ = strings.Cut(state, " ")
	return state
}

// What happens to a command under holdfast run, on a terminal and without, beside flock.
//
// covers: G6, G7, G8
func TestSituations(t *testing.T) {
	stores := map[string]func(t *testing.T) string{
		"flock": nil,
		"file": func(t *testing.T) string {
			return "file://" + filepath.Join(t.TempDir(), "locks")
		},
		"redis": func(t *testing.T) string { return testserver.SharedRedis(t).URL() },
	}
	for _, c := range situations {
		for kind, store := range stores {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				if kind != "file" {
					testserver.OnlyInAll(t, "the situations on Redis, and under flock")
				}
				t.Parallel()
				url := ""
				if store != nil {
					url = store(t)
				}
				c.do(newSession(t, url, store == nil, c.ttl))
			})
		}
	}
}

// The page has the situations that are tested, and no other.
func TestSituationsAreTold(t *testing.T) {
	page, err := os.ReadFile("../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| | flock | holdfast |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var told, tested []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(table, -1) {
		told = append(told, row[1])
	}
	for _, c := range situations {
		tested = append(tested, c.name)
	}
	if !slices.Equal(told, tested) {
		t.Errorf("the page tells of\n%s\nand what is tested is\n%s", strings.Join(told, "\n"),
			strings.Join(tested, "\n"))
	}
}

// A command that is stopped is told to end all the same.
func TestStoppedCommandIsTold(t *testing.T) {
	t.Parallel()
	for sig, status := range map[string]int{"HUP": 129, "INT": 130, "QUIT": 131, "TERM": 143} {
		s := newSession(t, "file://"+filepath.Join(t.TempDir(), "locks"), false, time.Hour)
		s.types("$LOCK sh sleep &")
		pid := s.begun()
		s.types("kill -STOP " + pid + "; kill -" + sig + " $!; wait $!")
		s.ends(status)
		s.isFree()
	}
}

// A run inside of a run, of another key, on a terminal: both stop and go on with the job, and the
// terminal goes through both.
func TestJobInAJob(t *testing.T) {
	s := newSession(t, "file://"+filepath.Join(t.TempDir(), "locks"), false, time.Hour)
	s.types("$LOCK " + binary + " run inner bash -c 'read x </dev/tty; echo got $x; . ./work'")
	s.types("typed")
	s.view.Await("got typed\r\n")
	pid := s.begun()
	s.types("\x1a")
	s.view.Await("Stopped")
	s.types("fg")
	await(t, "the job goes on", func() bool { return stateOf(pid) != "T" })
	s.types("\x03")
	s.ends(130)
	s.isFree()
}

// Nobody relies on a deadman that is not there without being told.
func TestDeadmanIsGone(t *testing.T) {
	t.Parallel()
	s := newSession(t, "file://"+filepath.Join(t.TempDir(), "locks"), false, shortTTL)
	s.types("$LOCK bash work & echo $! >holdfast")
	pid, parent := s.begun(), s.file("holdfast")
	own := processes(func(of, session string) bool {
		return of == parent && session != strconv.Itoa(s.shell.Process.Pid)
	})
	if len(own) != 1 {
		t.Fatalf("there are %v", own)
	}
	_ = syscall.Kill(own[0], syscall.SIGKILL)
	s.view.Await("the process that ends the command if holdfast is stopped is gone: ")
	s.staysHeld()
	s.isAlive(pid)
	s.over()
	s.types("wait %1")
	s.ends(3)
}

// A machine, or a part of one, without /proc.
func TestWithoutProc(t *testing.T) {
	testserver.OnlyInAll(t, "a mount namespace, which not everybody may make")
	dir := t.TempDir()
	args := []string{
		"unshare", "--mount", "--propagation", "unchanged", "sh", "-c",
		`mount -t tmpfs none /proc && exec "$@"`, "-",
		binary, "run", "without-proc", "--backend", testserver.SharedRedis(t).URL(), "echo", "in",
	}
	if os.Geteuid() != 0 {
		args = slices.Insert(args, 1, "--map-root-user")
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = command(t, dir).Env
	if out, err := cmd.Output(); err != nil || string(out) != "in\n" { // a race detector complains
		t.Errorf("%v: %s", err, out)
	}
}

// What is left of a command when the lock is lost has as long to end as the command, and no longer.
//
// covers: G7
func TestWhatIsLeftAtALoss(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"exit 0", ":"} { // when it is told to
		s := newSession(t, "file://"+filepath.Join(t.TempDir(), "locks"), false, shortTTL)
		s.write("left", "trap '"+ends+
			"' TERM; echo $$ >other; while [ -e go ]; do read -t 0.02 _ <>idle; done")
		s.types("$LOCK --kill-after 1s bash -c 'bash left & trap \"exit 9\" TERM; . ./work'")
		pid, other := s.begun(), s.file("other")
		holdfast(t, "release", s.key, "--force", "--backend", s.url).want(t, 0)
		s.view.Await("the command was ended")
		s.ends(76)
		await(t, "a process that does "+ends+" when it is told to end has ended", func() bool {
			return !alive(pid) && !alive(other)
		})
	}
}

// As the first process of a container, which no signal of its own ends, it reaps what is left, and
// its status tells of the signal.
func TestFirstProcess(t *testing.T) {
	testserver.OnlyInAll(t, "a process namespace, which not everybody may make")
	for script, status := range map[string]int{
		"exit 3": 3, "kill -INT $$": 130,
		"kill -QUIT $$": 131, "kill -TERM $$": 143,
	} {
		dir := t.TempDir()
		url := "file://" + filepath.Join(dir, "locks")
		reaped := `(true &); while cat /proc/[0-9]*/stat 2>/dev/null | grep -q ") Z 1 "; do ` +
			`sleep 0.02; done; echo $PPID; `
		cmd := firstProcess(t.Context(), t, dir, "run", "k", "--backend", url, "sh", "-c",
			reaped+script)
		if out, err := cmd.CombinedOutput(); statusOf(cmd) != status || string(out) != "1\n" {
			t.Errorf("%s: %v, want %d: %s", script, err, status, out)
		}
	}
}

// When a lock is over, the first process of a container does not wait for what is dead already, and
// that nobody else reaps.
//
// covers: G8
func TestFirstProcessAtALoss(t *testing.T) {
	testserver.OnlyInAll(t, "a process namespace, which not everybody may make")
	for name, c := range map[string]struct {
		trap,
		killAfter string
	}{"ends when told": {"exit 9", "5m"}, "is killed": {":", "1s"}} {
		dir := t.TempDir()
		url := "file://" + filepath.Join(dir, "locks")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		j := beginCommand(t, firstProcess(ctx, t, dir, "leader", "k", "--backend", url, "--ttl",
			"30m", "--max-hold", "1s", "--kill-after", c.killAfter,
			"sh", "-c", `(trap '' TERM; while kill -0 $$; do sleep 0.02; done) `+
				`2>/dev/null & trap '`+c.trap+`' TERM; echo $$; while :; do sleep 0.02; done`))
		first := j.line()
		if second := j.line(); second == first { // it leads again, within the minute
			t.Errorf("%s: %s again", name, second)
		}
		_ = j.cmd.Process.Kill()
		j.end()
	}
}

// firstProcess is the binary as the first process of a container.
func firstProcess(ctx context.Context, t *testing.T, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "unshare", "--pid", "--fork", "--mount-proc", "--propagation",
		"unchanged", "--kill-child", binary)
	if os.Geteuid() != 0 {
		cmd.Args = slices.Insert(cmd.Args, 1, "--map-root-user")
	}
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = command(t, dir).Env
	return cmd
}

// A server that is full, or has become a replica, while a command has its lock: a renewal needs no
// memory, and a replica takes none.
func TestRunOnAServerThatRefuses(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string][]string{
		"full":      {"CONFIG", "SET", "maxmemory", "1"},
		"read-only": {"REPLICAOF", "127.0.0.1", "1"},
	} {
		srv := testserver.Redis(t)
		s := newSession(t, srv.URL(), false, shortTTL)
		s.types("$LOCK bash work")
		pid := s.begun()
		srv.MustDo(refuse...)
		o := holdfast(t, "run", "other", "--no-wait", "--backend", srv.URL(), "echo", "in").want(t,
			77)
		if o.out != "" {
			t.Errorf("%s: %s%s", name, o.out, o.err)
		}
		if name == "full" {
			time.Sleep(shortTTL * 3 / 2)
			s.isAlive(pid)
			s.over()
			s.ends(3)
			continue
		}
		s.view.Await("the command was ended")
		s.ends(76)
		if alive(pid) {
			t.Errorf("%s: the command lives on", name)
		}
	}
}

// A store that is not up yet is waited for, for as long as one may wait.
func TestStoreIsNotUpYet(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"run k --wait 1h echo in", "leader k --wait 1h echo in",
		"wait k --timeout 1h",
	} {
		srv := testserver.Redis(t)
		srv.Kill()
		cmd := command(t, t.TempDir(), strings.Fields(args)...)
		cmd.Env = append(cmd.Env, "HOLDFAST_BACKEND="+srv.URL())
		var out bytes.Buffer
		cmd.Stdout = &out
		errs, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(errs)
		note, _ := said.ReadString('\n')
		srv.Restart()
		rest, _ := io.ReadAll(said)
		_ = cmd.Wait()
		want := map[bool]string{true: "", false: "in\n"}[strings.HasPrefix(args, "wait")]
		if status := statusOf(cmd); status != 0 || out.String() != want ||
			!strings.HasPrefix(note, "holdfast: waiting, cannot reach redis at ") || len(rest) > 0 {
			t.Errorf("%s: %d, %s%s%s", args, status, out.String(), note, rest)
		}
	}
	for _, args := range []string{
		"run k --wait 300ms true", "leader k --wait 300ms true",
		"wait k --timeout 300ms",
	} {
		o := holdfastWith(t, []string{"HOLDFAST_BACKEND=redis://127.0.0.1:1"},
			strings.Fields(args)...).want(t, 77)
		if !strings.HasPrefix(o.err,
			"holdfast: waiting, cannot reach redis at 127.0.0.1:1: dial tcp") ||
			strings.Count(o.err, "refused") != 2 {
			t.Errorf("%s: %s", args, o.err)
		}
	}
}
