package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/backend"
)

// queue is the state of a lock that one holds and n wait for.
func queue(holder string, n int) backend.State {
	meta := func(service string, age time.Duration) backend.Meta {
		return backend.Meta{Service: service, Host: "web-1", PID: 4711, Since: time.Now().Add(-age)}
	}
	s := backend.State{Holders: []backend.Holder{{
		Owner: holder, Mode: backend.Exclusive, Token: 1795502949040968, TTL: 20 * time.Second, Meta: meta(holder, time.Minute),
	}}}
	s.Holders[0].Meta.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for i := range n {
		s.Waiters = append(s.Waiters, backend.Waiter{Mode: backend.Exclusive, Meta: meta(fmt.Sprintf("buyer-%d", i), time.Duration(n-i)*time.Second)})
	}
	return s
}

// full is a screen with 40 locks whose keys have 60 characters, which 0, 1, 2, 3, 0 … wait for, and
// one that is short and that 50 wait for.
func full(width, height int) *screen {
	s := &screen{top: &top{client: &client{where: "redis://localhost:6379"}}, order: "w", width: width, height: height}
	s.began = time.Now()
	for i := range 40 {
		s.views = append(s.views, viewOf(fmt.Sprintf("orders/%02d/%s/end", i, strings.Repeat("x", 46)), queue("checkout", i%4)))
	}
	s.views = append(s.views, viewOf("short", queue("the-service-with-the-longest-name-of-all", 50)))
	s.keys = len(s.views)
	s.sort()
	return s
}

// However small the window, and whatever is opened, the screen fits, and the selected lock is on it.
func TestScreenFits(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {80, 25}, {40, 10}, {200, 60}, {20, 5}, {80, 4}, {80, 3}, {1, 1}} {
		s := full(size[0], size[1])
		for i, key := range strings.Fields("none enter down down down down down down down down enter enter up up right page_down page_down page_up o h n w left") {
			s.press(strings.ReplaceAll(key, "_", " "))
			lines := s.lines()
			if len(lines) > size[1] {
				t.Fatalf("%v after %d keys: %d lines", size, i, len(lines))
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(l); n > size[0] && size[0] > 40 {
					t.Errorf("%v after %d keys: a line of %d characters: %s", size, i, n, l)
				}
			}
			if marked := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "> ") }); marked < 2 && size[1] > 3 {
				t.Errorf("%v after %d keys: the selected lock is not in\n%s", size, i, strings.Join(lines, "\n"))
			}
		}
	}
	lines := full(80, 24).lines()
	if want := "  KEY  "; len(lines) != 24 || !strings.HasPrefix(lines[1], want) {
		t.Errorf("%d lines at 80x24:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	for _, l := range lines[3:23] {
		if !strings.HasPrefix(l, "  orders/") || !strings.Contains(l, "…") || !strings.Contains(l, "/end  ") {
			t.Errorf("the key is not shortened in the middle: %s", l)
		}
	}
}

// The most contended lock is the first, and other orders are to be had.
func TestScreenOrder(t *testing.T) {
	s := full(200, 24)
	first := func() string { return strings.Fields(s.lines()[2])[1] }
	for _, c := range []struct{ key, first string }{{"n", "orders/00"}, {"w", "short"}, {"h", "orders/00"}, {"o", "short"}} {
		if c.key == "h" { // the one that is held for longest
			i := slices.IndexFunc(s.views, func(v lockView) bool { return strings.HasPrefix(v.Key, "orders/00") })
			s.views[i].Holders[0].Held *= 2
		}
		s.press(c.key)
		if got := first(); !strings.HasPrefix(got, c.first) {
			t.Errorf("sorted by %s, %s is the first, want %s", c.key, got, c.first)
		}
	}
	// Who was selected stays so when the order is another in the next look.
	s.press("down")
	selected := s.selected
	slices.Reverse(s.views)
	if s.views[s.index()].Key != selected || selected == "" {
		t.Errorf("%q is selected after the next look, was %q", s.views[s.index()].Key, selected)
	}
}

// Mode, trace and token are shown where there is room.
func TestScreenColumns(t *testing.T) {
	header := func(width int, keys ...string) string {
		s := full(width, 24)
		s.views = s.views[:0]
		for _, k := range keys {
			s.views = append(s.views, viewOf(k, queue("web", 1)))
		}
		return strings.Join(strings.Fields(s.lines()[1]), " ")
	}
	for width, want := range map[int]string{
		60: "KEY WAIT OLDEST HELD HELD BY", 80: "KEY WAIT OLDEST HELD MODE HELD BY", 90: "KEY WAIT OLDEST HELD MODE HELD BY",
		110: "KEY WAIT OLDEST HELD MODE TRACE HELD BY", 140: "KEY WAIT OLDEST HELD MODE TOKEN TRACE HELD BY",
	} {
		if got := header(width, "order-17", "order-18"); got != want {
			t.Errorf("at %d: %s, want %s", width, got, want)
		}
	}
	if got := header(80, strings.Repeat("k", 60)); got != "KEY WAIT OLDEST HELD HELD BY" {
		t.Errorf("with a long key: %s", got)
	}
	noted := func(width int) string {
		s, state := full(width, 24), queue("web", 2)
		state.Holders[0].Meta.Note, state.Waiters[0].Meta.Note, state.Waiters[1].Meta.Note = "the books are closed", "a refund that does not wait for long", "\x1b"
		s.views = []lockView{viewOf("order-17", state)}
		s.press("enter")
		return strings.Join(s.lines(), "\n")
	}
	for width, want := range map[int][]string{
		80: {
			"HELD BY               NOTE", "web@web-1 (pid 4711)  the boo… closed", "\n    note the books are closed\n",
			"\n    buyer-0@web-1 (pid 4711) waits for web@web-1 (pid 4711)  2s  a refun…or long\n", `  1s  "\x1b"` + "\n",
		},
		70: {"MODE       HELD BY\n", "waits for web@web-1 (pid 4711)  2s\n"},
	} {
		for _, w := range want {
			if got := noted(width); !strings.Contains(got, w) {
				t.Errorf("at %d no %q in\n%s", width, w, got)
			}
		}
	}
}

// A lock that was opened and is gone is not followed by another that is open. A long note has several
// lines, and a store that gives no answer is told of.
func TestScreenGoesOn(t *testing.T) {
	s := full(80, 24)
	s.views[0].Holders[0].Note = strings.Repeat("why ", 30) + "end"
	s.press("enter")
	if text := strings.Join(s.lines(), "\n"); strings.Count(text, "why") != 30 || !strings.Contains(text, "why end\n") {
		t.Errorf("no whole note in\n%s", text)
	}
	s.renew()
	if text := strings.Join(s.lines(), "\n"); !strings.Contains(text, "waits for") {
		t.Errorf("closed by a look:\n%s", text)
	}
	s.views = s.views[1:]
	s.renew()
	if text := strings.Join(s.lines(), "\n"); strings.Contains(text, "waits for") || s.open {
		t.Errorf("another is open:\n%s", text)
	}
	s.trouble = "cannot reach redis"
	if title := s.lines()[0]; title != "redis://localhost:6379  cannot reach redis" {
		t.Error(title)
	}
	s = full(40, 10)
	s.press("enter")
	if text := strings.Join(s.lines(), "\n"); !strings.Contains(text, "\n    exclusive  token 1795502949040968\n    lease 20s left  the-servic…pid 4711)\n") {
		t.Errorf("no holder in\n%s", text)
	}
}

// A lock that is opened shows who waits for whom, and the whole key.
func TestScreenEdges(t *testing.T) {
	s := full(80, 24)
	s.press("enter")
	text := strings.Join(s.lines(), "\n")
	for _, want := range []string{
		"\n    short\n", "\n    exclusive  token 1795502949040968  lease 20s left  the-", "\n    trace 0af7651916cd43dd8448eb211c80319c\n",
		"\n    buyer-0@web-1 (pid 4711) waits for the-service-with-t…@web-1 (pid 4711)  50s\n", "lines more\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	s.press("left")
	if text := strings.Join(s.lines(), "\n"); strings.Contains(text, "waits for") {
		t.Errorf("closed:\n%s", text)
	}
	s.press("down")
	s.press("right")
	text = strings.Join(s.lines(), "\n")
	if key := "\n    " + s.selected + "\n"; utf8.RuneCountInString(s.selected) != 60 || !strings.Contains(text, key) || strings.Count(text, " waits for checkout@web-1 (pid 4711)  ") != 3 {
		t.Errorf("no whole key or not three edges in\n%s", text)
	}
}

func TestReadKeys(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	keys := make(chan string)
	go func() {
		defer cancel()
		readKeys(ctx, strings.NewReader("\x1b[A\x1bOBw\x1b[5~\x1b[1;5Hq\r\x03\x1b[M"), keys)
	}()
	var got []string
	for ctx.Err() == nil {
		select {
		case k := <-keys:
			got = append(got, k)
		case <-ctx.Done():
		}
	}
	if want := []string{"up", "down", "w", "page up", "q", "enter", "q"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Bytes that are no text could be control characters of a terminal with eight bits.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"order-17 ü 世界": "order-17 ü 世界", "a\x9b31m": `"a\x9b31m"`, "a\u009b": `"a\u009b"`, "\u202eb": `"\u202eb"`, "a\x1b[31m": `"a\x1b[31m"`,
	} {
		if got := printable(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
	if got, want := escape("a\x1b\U000e0001\x9b"), `a\u001b\udb40\udc01`+"\ufffd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
