package terminal

import (
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTerminal(t *testing.T) {
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	fd := int(screen.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	t.Setenv("TERM", "xterm")
	if w, h := Size(tty); !Is(tty) || w != 80 || h != 24 { // one that does not tell how wide it is
		t.Errorf("terminal: %v, %d columns, %d lines", Is(tty), w, h)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ,
		&unix.Winsize{Col: 57, Row: 12}); err != nil {
		t.Fatal(err)
	}
	if w, h := Size(tty); w != 57 || h != 12 {
		t.Errorf("%d columns, %d lines", w, h)
	}
	t.Setenv("TERM", "dumb")
	if Is(tty) {
		t.Error("a dumb terminal takes escape sequences")
	}
	t.Setenv("TERM", "xterm")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if columns, _ := Size(w); Is(w) || columns != 80 {
		t.Errorf("pipe: %v, %d columns", Is(w), columns)
	}
}
