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
		Owner: holder, Mode: backend.Exclusive, Token: 1795502949040968, TTL: 20 * time.Second,
		Meta: meta(holder, time.Minute),
	}}}
	s.Holders[0].Meta.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for i := range n {
		s.Waiters = append(s.Waiters,
			backend.Waiter{
				Mode: backend.Exclusive,
				Meta: meta(fmt.Sprintf("buyer-%d", i), time.Duration(n-i)*time.Second),
			})
	}
	return s
}

// full is a screen with 40 locks whose keys have 60 characters, which 0, 1, 2, 3, 0 … wait for, and
// one that is short and that 50 wait for.
func full(width, height int) *screen {
	s := &screen{
		top: &top{client: &client{where: "redis://localhost:6379"}}, order: "w",
		width: width, height: height,
	}
	s.began = time.Now()
	for i := range 40 {
		s.views = append(s.views,
			viewOf(fmt.Sprintf("orders/%02d/%s/end", i, strings.Repeat("x", 46)),
				queue("checkout", i%4)))
	}
	s.views = append(s.views,
		viewOf("short", queue("the-service-with-the-longest-name-of-all", 50)))
	s.keys = len(s.views)
	s.sort()
	return s
}

// However small the window, and whatever is opened, the screen fits, and the selected lock is on
// it.
func TestScreenFits(t *testing.T) {
	for _, size := range [][2]int{
		{80, 24},
		{80, 25},
		{40, 10},
		{200, 60},
		{20, 5},
		{80, 4},
		{80, 3},
		{1, 1},
	} {
		s := full(size[0], size[1])
		for i, key := range strings.Fields(
			"none enter down down down down down down down down enter enter up up right " +
				"page_down page_down page_up o h n w left") {
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
			if marked := slices.IndexFunc(lines, func(l string) bool {
				return strings.HasPrefix(l, "> ")
			}); marked < 2 && size[1] > 3 {
				t.Errorf("%v after %d keys: the selected lock is not in\n%s", size, i,
					strings.Join(lines, "\n"))
			}
		}
	}
	lines := full(80, 24).lines()
	if want := "  KEY  "; len(lines) != 24 || !strings.HasPrefix(lines[1], want) {
		t.Errorf("%d lines at 80x24:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	for _, l := range lines[3:23] {
		if !strings.HasPrefix(l, "  orders/") || !strings.Contains(l, "…") ||
			!strings.Contains(l, "/end  ") {
			t.Errorf("the key is not shortened in the middle: %s", l)
		}
	}
}

// The most contended lock is the first, and other orders are to be had.
func TestScreenOrder(t *testing.T) {
	s := full(200, 24)
	first := func() string { return strings.Fields(s.lines()[2])[1] }
	for _, c := range []struct{ key, first string }{
		{"n", "orders/00"},
		{"w", "short"},
		{"h", "orders/00"},
		{"o", "short"},
	} {
		if c.key == "h" { // the one that is held for longest
			i := slices.IndexFunc(s.views, func(v lockView) bool {
				return strings.HasPrefix(v.Key, "orders/00")
			})
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
		60: "KEY WAIT OLDEST HELD HELD BY", 80: "KEY WAIT OLDEST HELD MODE HELD BY",
		90:  "KEY WAIT OLDEST HELD MODE HELD BY",
		110: "KEY WAIT OLDEST HELD MODE TRACE HELD BY",
		140: "KEY WAIT OLDEST HELD MODE TOKEN TRACE HELD BY",
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
		state.Holders[0].Meta.Note, state.Waiters[0].Meta.Note,
			state.Waiters[1].Meta.Note = "the books are closed",
			"a refund that does not wait for long", "\x1b"
		s.views = []lockView{viewOf("order-17", state)}
		s.press("enter")
		return strings.Join(s.lines(), "\n")
	}
	for width, want := range map[int][]string{
		80: {
			"HELD BY               NOTE", "web@web-1 (pid 4711)  the boo… closed",
			"\n    note the books are closed\n",
			"\n    buyer-0@web-1 (pid 4711) waits for web@web-1 (pid 4711)  2s  a refun…or long\n",
			`  1s  "\x1b"` + "\n",
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

// A lock that was opened and is gone is not followed by another that is open. A long note has
// several lines, and a store that gives no answer is told of.
func TestScreenGoesOn(t *testing.T) {
	s := full(80, 24)
	s.views[0].Holders[0].Note = strings.Repeat("why ", 30) + "end"
	s.press("enter")
	if text := strings.Join(s.lines(), "\n"); strings.Count(text, "why") != 30 ||
		!strings.Contains(text, "why end\n") {
		t.Errorf("no whole note in\n%s", text)
	}
	s.arranged()
	if text := strings.Join(s.lines(), "\n"); !strings.Contains(text, "waits for") {
		t.Errorf("closed by a look:\n%s", text)
	}
	s.views = s.views[1:]
	s.arranged()
	if text := strings.Join(s.lines(), "\n"); strings.Contains(text, "waits for") || s.open {
		t.Errorf("another is open:\n%s", text)
	}
	s.trouble = "cannot reach redis"
	if title := s.lines()[0]; title != "redis://localhost:6379  cannot reach redis" {
		t.Error(title)
	}
	s = full(40, 10)
	s.press("enter")
	if text := strings.Join(s.lines(), "\n"); !strings.Contains(text,
		"\n    exclusive  token 1795502949040968\n    lease 20s left  the-servic…pid 4711)\n") {
		t.Errorf("no holder in\n%s", text)
	}
}

// A lock that is opened shows who waits for whom, and the whole key.
func TestScreenEdges(t *testing.T) {
	s := full(80, 24)
	s.press("enter")
	text := strings.Join(s.lines(), "\n")
	for _, want := range []string{
		"\n    short\n", "\n    exclusive  token 1795502949040968  lease 20s left  the-",
		"\n    trace 0af7651916cd43dd8448eb211c80319c\n",
		"\n    buyer-0@web-1 (pid 4711) waits for the-service-with-t…@web-1 (pid 4711)  50s\n",
		"\n    lines 1 to 19 of 53, ↑↓ for the others\n",
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
	if key := "\n    " + s.selected + "\n"; utf8.RuneCountInString(s.selected) != 60 ||
		!strings.Contains(text, key) ||
		strings.Count(text, " waits for checkout@web-1 (pid 4711)  ") != 3 {
		t.Errorf("no whole key or not three edges in\n%s", text)
	}
}

// The arrows go through an open lock that is longer than the window, and behind its end to the
// next.
func TestScreenScrolls(t *testing.T) {
	s := full(80, 24)
	s.press("enter")
	seen := map[string]bool{}
	look := func() {
		for _, l := range s.lines() {
			seen[strings.TrimSpace(strings.Split(l, " waits for ")[0])] = true
		}
	}
	presses := 0
	for look(); s.selected == "short"; look() {
		s.press("down")
		presses++
	}
	for i := range 50 {
		if !seen[fmt.Sprintf("buyer-%d@web-1 (pid 4711)", i)] {
			t.Errorf("waiter %d is not to be seen", i)
		}
	}
	if want := 53 - 19 + 1; presses != want {
		t.Errorf("%d presses, want %d to the end of 53 lines with 19 at a time, and one", presses,
			want)
	}
	s.press("up")
	if first := s.lines()[3]; s.selected != "short" || strings.TrimSpace(first) != "short" {
		t.Errorf("back on %q with %q", s.selected, first)
	}
	s.press("page down")
	look()
	s.views[0].Waiters = s.views[0].Waiters[:3] // a look later there is room for all
	if text := strings.Join(s.lines(), "\n"); !strings.Contains(text, "exclusive  token") ||
		strings.Contains(text, " of 53") {
		t.Errorf("with fewer waiters\n%s", text)
	}
	if s.press("up"); s.selected != "short" || s.above != 0 {
		t.Errorf("%q, %d", s.selected, s.above)
	}
	s = full(80, 24)
	s.views = s.views[:1]
	s.press("enter")
	for s.lines(); s.above < s.most; s.lines() {
		s.press("page down")
	}
	last := s.above
	s.press("down")
	if s.lines(); s.above != last {
		t.Errorf("behind the end of the last lock %d lines are above, want %d", s.above, last)
	}
	s.press("enter")
	s.press("enter")
	if s.lines(); s.above != 0 || !s.open {
		t.Errorf("opened anew with %d lines above", s.above)
	}
}

// Who would share the lock with those who hold it waits for who is in front of it.
func TestInFrontOf(t *testing.T) {
	state := queue("reader", 4)
	state.Holders[0].Mode = backend.Shared
	for i, mode := range []backend.Mode{
		backend.Shared, backend.Exclusive, backend.Shared,
		backend.Exclusive,
	} {
		state.Waiters[i].Mode = mode
	}
	const reader, writer = "reader@web-1 (pid 4711)", "buyer-1@web-1 (pid 4711)"
	v := viewOf("k", state)
	for i, want := range []string{reader, reader, writer, reader} {
		if got := v.inFrontOf(i); got != want {
			t.Errorf("waiter %d waits for %s, want %s", i, got, want)
		}
	}
	v.Holders = append(v.Holders, v.Holders[0])
	if got := v.inFrontOf(1); got != reader+" and 1 more" {
		t.Error(got)
	}
	v.Holders = nil
	if got := v.inFrontOf(0) + ", " + v.inFrontOf(2); got != "nobody any more, "+writer {
		t.Error(got)
	}
}

func TestSummary(t *testing.T) {
	for want, f := range map[string]frame{
		"1 key, 1 hold, 1 waiter": {
			keys: 1, holds: 1, queued: 1,
			views: make([]lockView, 1),
		},
		"0 keys, 0 holds, 0 waiters": {},
		"28 keys, 28 holds, 0 waiters, the first 20 are shown": {
			keys: 28, holds: 28,
			views: make([]lockView, 20),
		},
		"2 keys, 2 holds, 0 waiters, at least 2.0 new holds/s": {
			keys: 2, holds: 2,
			views: make([]lockView, 2), grants: 4, within: 2 * time.Second,
		},
	} {
		if got := f.summary(); !strings.HasSuffix(got, "  "+want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234 * time.Microsecond: "1.23ms", 1500 * time.Millisecond: "1.5s", time.Minute: "1m",
		90 * time.Second: "1m30s", time.Hour: "1h",
		time.Hour + time.Second: "1h0m1s", time.Hour + 10*time.Minute: "1h10m",
		100 * time.Hour: "100h", 0: "0s",
	} {
		if got := ago(d); got != want {
			t.Errorf("%v is told as %s, want %s", d, got, want)
		}
	}
}

// What is well for long leases alone is a warning for shorter ones.
func TestFindingWithTTL(t *testing.T) {
	f := backend.Finding{
		Check: "ttl", Level: backend.OK, Text: "if its TTL is 40s or more",
		MinTTL: 40 * time.Second,
	}
	if got := withTTL(f, 40*time.Second); got != f {
		t.Errorf("%+v", got)
	}
	if got := withTTL(f, 30*time.Second); got.Level != backend.Warn ||
		got.Text != f.Text+"; it is 30s" || got.Change == "" {
		t.Errorf("%+v", got)
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
		"order-17 ü 世界": "order-17 ü 世界", "a\x9b31m": `"a\x9b31m"`, "a\u009b": `"a\u009b"`,
		"\u202eb": `"\u202eb"`, "a\x1b[31m": `"a\x1b[31m"`,
	} {
		if got := printable(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
	if got, want := escape("a\x1b\U000e0001\x9b"), `a\u001b\udb40\udc01`+"\ufffd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
