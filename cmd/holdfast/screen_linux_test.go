package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// OpenTerminal returns both ends of a new terminal of 80 by 24: what shows on it and is typed, and
// the one that programs have.
func OpenTerminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	n, err := control(screen, func(fd int) (int, error) {
		return unix.IoctlGetInt(fd, unix.TIOCGPTN)
	})
	if err == nil {
		_, err = control(screen, func(fd int) (int, error) {
			return 0, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	Resize(t, tty, 80, 24)
	return screen, tty
}

// control calls f with the descriptor of a file that can be waited for all the same, as with Fd it
// cannot.
func control(file *os.File, f func(fd int) (int, error)) (n int, err error) {
	c, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if outer := c.Control(func(fd uintptr) { n, err = f(int(fd)) }); outer != nil {
		return 0, outer
	}
	return n, err
}

// Resize gives the window of a terminal another size.
func Resize(t *testing.T, tty *os.File, width, height uint16) {
	t.Helper()
	_, err := control(tty, func(fd int) (int, error) {
		return 0, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A Viewer is a person before a terminal.
type Viewer struct {
	t      *testing.T
	screen *os.File

	mu    sync.Mutex
	shown bytes.Buffer
	more  chan struct{} // something is shown
}

// View begins to look at the screen of a terminal.
func View(t *testing.T, screen *os.File) *Viewer {
	v := &Viewer{t: t, screen: screen, more: make(chan struct{}, 1)}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := screen.Read(buf)
			if err != nil {
				return
			}
			v.mu.Lock()
			v.shown.Write(buf[:n])
			v.mu.Unlock()
			select {
			case v.more <- struct{}{}:
			default:
			}
		}
	}()
	return v
}

// Await waits until text is shown behind what was awaited before.
func (v *Viewer) Await(text string) {
	v.t.Helper()
	v.Until(text)
}

// Until is [Viewer.Await], and returns what is shown before the text.
func (v *Viewer) Until(text string) (before string) {
	v.t.Helper()
	for {
		v.mu.Lock()
		front, behind, found := bytes.Cut(v.shown.Bytes(), []byte(text))
		if found {
			before = string(front)
			v.shown = *bytes.NewBuffer(bytes.Clone(behind))
		}
		v.mu.Unlock()
		if found {
			return before
		}
		select {
		case <-v.more:
		case <-time.After(time.Minute):
			v.t.Fatalf("%q is not shown, but %q", text, v.shown.String())
		}
	}
}

// Types presses the keys of text.
func (v *Viewer) Types(text string) {
	v.t.Helper()
	if _, err := v.screen.WriteString(text); err != nil {
		v.t.Error(err)
	}
}

// However top ends, the terminal is as it was.
func TestTerminalIsRestored(t *testing.T) {
	failed := errors.New("no answer")
	for name, c := range map[string]struct {
		end  func(v *Viewer, interrupt func())
		err  error
		says string // of a panic
	}{
		"q":        {end: func(v *Viewer, _ func()) { v.Types("q") }},
		"Ctrl-C":   {end: func(v *Viewer, _ func()) { v.Types("\x03") }},
		"a signal": {end: func(_ *Viewer, interrupt func()) { interrupt() }},
		"an error": {err: failed},
		"a panic":  {says: "of a look"},
	} {
		t.Run(name, func(t *testing.T) {
			screen, tty := OpenTerminal(t)
			v := View(t, screen)
			settings := func() unix.Termios {
				var s *unix.Termios
				_, err := control(tty, func(fd int) (_ int, err error) {
					s, err = unix.IoctlGetTermios(fd, unix.TCGETS)
					return 0, err
				})
				if err != nil {
					t.Fatal(err)
				}
				return *s
			}
			before := settings()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			top := &top{client: &client{where: "redis://h"}}
			ended := make(chan error, 1)
			var paniced any
			fault := make(chan struct{})
			go func() {
				defer func() {
					if p := recover(); p != nil {
						paniced = p
						ended <- nil
					}
				}()
				ended <- top.show(ctx, tty, tty, func(ctx context.Context, seen func(frame)) error {
					seen(full(80, 24).frame)
					if c.end != nil {
						<-ctx.Done()
						return nil
					}
					<-fault
					if c.says != "" {
						panic(c.says)
					}
					return c.err
				})
			}()
			v.Await("\x1b[?1049h\x1b[?25l\x1b[?7l")
			v.Await("q quit")
			if during := settings(); during.Lflag&(unix.ICANON|unix.ECHO) != 0 {
				t.Errorf("keys are shown, or wait for Enter: %+v", during)
			}
			if c.end != nil {
				c.end(v, interrupt)
			}
			close(fault)
			if err := <-ended; !errors.Is(err, c.err) {
				t.Errorf("it ends with %v, want %v", err, c.err)
			}
			if text, _ := paniced.(string); !strings.HasPrefix(text, c.says) ||
				(c.says != "") != strings.Contains(text, "TestTerminalIsRestored") {
				t.Errorf("it panics with %v", paniced)
			}
			v.Await("\x1b[?7h\x1b[?25h\x1b[?1049l")
			if after := settings(); after != before {
				t.Errorf("the terminal is left as %+v, was %+v", after, before)
			}
		})
	}
}

// The screen follows the window, and keys what is typed.
func TestTerminalFollows(t *testing.T) {
	screen, tty := OpenTerminal(t)
	v := View(t, screen)
	ended := make(chan error, 1)
	go func() {
		ended <- (&top{client: &client{where: "redis://h"}}).show(t.Context(), tty, tty,
			func(ctx context.Context, seen func(frame)) error {
				seen(full(80, 24).frame)
				<-ctx.Done()
				return nil
			})
	}()
	v.Await("\r\n\x1b[K> short ")
	v.Await("q quit")
	v.Types("\r")
	v.Await("    buyer-0@web-1 (pid 4711) waits for ")
	v.Await("q quit")
	v.Types("\x1b[D\x1b[B")
	v.Await("\r\n\x1b[K> orders/")
	v.Await("q quit")
	Resize(t, tty, 200, 10)
	v.Await("MODE ")
	v.Await("q quit")
	v.Types("q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
