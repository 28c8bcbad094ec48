package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
)

const (
	// The alternate screen, no cursor, and what is too wide is cut off.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// show draws frames on the terminal out until somebody types q at in, or ctx ends. looks calls seen
// with each frame and returns when its ctx ends, or with an error. However it ends, by a panic of
// looks too, the terminal is as it was.
func (t *top) show(ctx context.Context, in, out *os.File,
	looks func(ctx context.Context, seen func(frame)) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames, ended, paniced := make(chan frame, 1), make(chan error, 1), make(chan string, 1)
	keys := make(chan string)
	var before *term.State // nil if nobody can type
	enter := func() error {
		before, _ = term.MakeRaw(int(in.Fd()))
		_, err := out.WriteString(enterScreen)
		return err
	}
	leave := func() {
		_, _ = out.WriteString(leaveScreen)
		if before != nil {
			_ = term.Restore(int(in.Fd()), before)
		}
	}
	defer leave()
	if err := enter(); err != nil {
		return err
	}
	if before != nil {
		go readKeys(ctx, in, keys)
	}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				paniced <- fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			}
		}()
		ended <- looks(ctx, func(f frame) {
			select { // instead of one that is not drawn yet
			case <-frames:
			default:
			}
			frames <- f
		})
	}()
	tick := time.NewTicker(200 * time.Millisecond) // for a window that has another size now
	defer tick.Stop()
	s := screen{top: t, order: orders[0].key}
	s.resize(out)
	for {
		if _, err := out.WriteString(s.draw()); err != nil {
			return err
		}
		for changed := false; !changed; {
			select {
			case s.frame = <-frames:
				s.arranged()
				changed = true
			case key := <-keys:
				if key == "Ctrl-Z" { // which no longer is a signal by itself; safeguard: top-stops
					leave()
					stopped()
					if err := enter(); err != nil {
						return err
					}
				}
				if !s.press(key) {
					return nil
				}
				changed = true
			case <-tick.C:
				changed = s.resize(out)
			case err := <-ended:
				return err
			case p := <-paniced:
				panic(p) // here, where the terminal is put back
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// names are what terminals send for keys.
var names = map[string]string{
	"\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
	"\x1b[C": "right", "\x1bOC": "right", "\x1b[D": "left", "\x1bOD": "left",
	"\r": "enter", "\n": "enter", "\x1b": "left", "\x03": "q",
	"\x1a": "Ctrl-Z", "\x1b[5~": "page up", "\x1b[6~": "page down",
}

// readKeys tells of keys that are typed, as names has them, until ctx ends, or nobody can type any
// more.
func readKeys(ctx context.Context, in io.Reader, keys chan<- string) {
	buf := make([]byte, 64)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		for typed := string(buf[:n]); typed != ""; {
			key := typed[:1]
			if len(typed) >= 3 && typed[0] == '\x1b' && (typed[1] == '[' || typed[1] == 'O') {
				end := 2 // a sequence ends with a letter or ~
				for end < len(typed)-1 && typed[end] < '@' {
					end++
				}
				key = typed[:end+1]
			}
			typed = typed[len(key):]
			if len(key) == 1 || names[key] != "" {
				select {
				case keys <- cmp.Or(names[key], key):
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

// A screen is what top shows on a terminal.
type screen struct {
	*top
	frame
	width, height int
	order         string // the key of it
	selected      string // the lock; empty for the first one
	open          bool   // the selected lock shows its waiters
	first         int    // the line that is the first on the screen

	// How many lines of the selected lock are not shown, in front of those that are, now and at
	// most.
	above, most int
}

// resize takes the size of the window, and reports whether it is another.
func (s *screen) resize(out *os.File) bool {
	w, h := terminal.Size(out)
	changed := w != s.width || h != s.height
	s.width, s.height = w, h
	return changed
}

// arranged has a frame that is new in the order that was asked for, and the lock that was opened
// closed if it is gone, instead of another opened in its place.
func (s *screen) arranged() {
	s.sort()
	// safeguard: opened-gone
	if !slices.ContainsFunc(s.views, func(v lockView) bool { return v.Key == s.selected }) {
		s.open = false
	}
}

func (s *screen) sort() {
	for _, o := range orders {
		if o.key == s.order {
			slices.SortStableFunc(s.views, o.compare)
		}
	}
}

// index is that of the selected lock, or of the first one if that is gone.
func (s *screen) index() int {
	return max(0, slices.IndexFunc(s.views, func(v lockView) bool { return v.Key == s.selected }))
}

// press does what a key stands for, and reports whether to go on.
func (s *screen) press(key string) bool {
	page := max(1, s.height-4)
	moves := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page,
		"enter": 0, "right": 0,
	}
	move, selects := moves[key]
	// The arrows go through the lines of the open lock first. safeguard: open-scrolls
	if to := max(0, min(s.above+move, s.most)); s.open && to != s.above {
		s.above = to
		return true
	}
	selected, opened := s.selected, s.open
	if last := min(len(s.views), s.limit()) - 1; selects && last >= 0 {
		s.selected = s.views[max(0, min(s.index()+move, last))].Key
	}
	switch key {
	case "q":
		return false
	case "enter":
		s.open = !s.open
	case "right", "left":
		s.open = key == "right"
	}
	if s.open && !opened && len(s.views) > 0 {
		s.selected = s.views[s.index()].Key
	}
	for _, o := range orders {
		if o.key == key {
			s.order, s.selected, s.open = key, "", false
			s.sort()
		}
	}
	if s.selected != selected || s.open != opened { // safeguard: open-stays
		s.above = 0
	}
	return true
}

// limit is how many locks are shown at most.
func (s *screen) limit() int { return cmp.Or(s.rows, len(s.views)) }

// draw returns what shows the frame on the terminal.
func (s *screen) draw() string {
	lines := s.lines()
	for len(lines) < s.height {
		lines = append(lines, "")
	}
	// A line is erased before it is written: behind its last column, an erasure takes that too.
	return "\x1b[H\x1b[K" + strings.Join(lines, "\r\n\x1b[K")
}

// lines are those of the window: a title, the table and the keys.
func (s *screen) lines() []string {
	if s.began.IsZero() {
		return []string{terminal.Shorten(s.where+"  looking for locks", s.width)}
	}
	summary := "  " + cmp.Or(s.trouble, s.summary())
	where := terminal.Shorten(s.where, max(8, s.width-terminal.Width(summary)))
	title := terminal.Shorten(where+summary, s.width)
	help := "q quit  ↑↓ select  Enter opens  sort:"
	for _, o := range orders {
		if help += "  " + o.key + " " + o.name; o.key == s.order {
			help += "*"
		}
	}
	height := s.height - 3
	if height < 1 {
		return []string{title}
	}
	body, at, size := s.table(height)
	if s.first = min(s.first, at); at+size > s.first+height { // the selected lock is in view
		s.first = at + size - height
	}
	s.first = max(0, min(s.first, len(body)-1-height))
	shown := body[1+s.first : min(len(body), 1+s.first+height)]
	lines := append([]string{title, body[0]}, shown...)
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	return append(lines, terminal.Cut(help, s.width))
}

// table returns the lines of the table, the header first, and where behind it the selected lock and
// what is shown of it begin and how many lines those are: at most height.
func (s *screen) table(height int) (lines []string, at, size int) {
	views := s.views[:min(len(s.views), s.limit())]
	rows := tableOf(views, s.paint).fit(max(s.width-2, 1))
	line := func(row int) string { return rows.row(row)[0] }
	lines = []string{"  " + line(0)}
	selected := s.index()
	for i, v := range views {
		if i != selected {
			lines = append(lines, "  "+line(i+1))
			continue
		}
		at = len(lines) - 1
		lines = append(lines, "> "+line(i+1))
		if s.open {
			lines = append(lines, s.details(v, height-1)...)
		}
		size = len(lines) - 1 - at
	}
	return lines, at, size
}

// detail adds the lines of a holder of an open lock, of at most width columns.
func (h holderView) detail(width int, add func(format string, args ...any)) {
	about := h.Mode
	if h.Weight > 0 {
		about += fmt.Sprintf(" of weight %d", h.Weight)
	}
	if h.Token != 0 {
		about += fmt.Sprintf("  token %d", h.Token)
	}
	lease := fmt.Sprintf("lease %s left  ", ago(h.hold.TTL))
	if least := 16; width-len(about+"  "+lease) >= least {
		lease = about + "  " + lease
	} else {
		add("%s", about)
	}
	add("%s%s", lease, terminal.Shorten(name(h.meta), width-len(lease)))
	if h.Note != "" { // safeguard: holders-note
		for _, line := range terminal.Fold("note "+printable(h.Note), width) {
			add("%s", terminal.Shorten(line, width))
		}
	}
	if h.Trace != "" {
		add("trace %s", printable(h.Trace))
	}
}

// inFrontOf names whom the waiter with that index waits for: who holds, or the waiter in front of
// it if it would share the lock with those.
func (v lockView) inFrontOf(index int) string {
	shares := func(c claimView) bool { return c.Mode == backend.Shared.String() }
	exclusive := func(h holderView) bool { return !shares(h.claimView) }
	if shares(v.Waiters[index].claimView) && !slices.ContainsFunc(v.Holders, exclusive) {
		for _, w := range slices.Backward(v.Waiters[:index]) {
			if !shares(w.claimView) { // safeguard: waits-for-a-writer
				return name(w.meta)
			}
		}
	}
	switch n := len(v.Holders); n {
	case 0:
		return "nobody any more"
	case 1:
		return name(v.Holders[0].meta)
	default:
		return fmt.Sprintf("%s and %d more", name(v.Holders[0].meta), n-1)
	}
}

// details are what is shown of a lock that is opened, in at most height lines.
func (s *screen) details(v lockView, height int) (lines []string) {
	width := max(s.width-4, 8)
	add := func(format string, args ...any) {
		lines = append(lines, "    "+terminal.Cut(fmt.Sprintf(format, args...), width))
	}
	for key := printable(v.Key); key != ""; {
		n := min(len(key), len(terminal.Cut(key, width)))
		add("%s", key[:n])
		key = key[n:]
	}
	for _, h := range v.Holders {
		h.detail(width, add)
	}
	if len(v.Waiters) == 0 {
		add("nobody waits")
	}
	for i, w := range v.Waiters {
		holder := v.inFrontOf(i)
		behind := ""
		if w.Waits > 0 {
			behind = "  " + ago(since(w.meta.Since))
		}
		if w.Mode != backend.Exclusive.String() {
			behind += "  " + w.Mode
		}
		each := (width - len(" waits for ") - len(behind)) / 2
		waiter := terminal.Shorten(name(w.meta),
			max(each, width-len(" waits for ")-len(behind)-terminal.Width(holder)))
		rest := width - len(" waits for ") - len(behind) - terminal.Width(waiter)
		line := fmt.Sprintf("%s waits for %s%s", waiter, terminal.Shorten(holder, rest), behind)
		// safeguard: waiters-note
		if left := width - terminal.Width(line) - 2; w.Note != "" && left >= 8 {
			line += "  " + terminal.Shorten(printable(w.Note), left)
		}
		add("%s", line)
	}
	return s.part(lines, height)
}

// part is what of an open lock's lines is shown in so many.
func (s *screen) part(lines []string, height int) []string {
	height = max(height, 0)
	if s.most = 0; len(lines) > height && height > 1 {
		s.most = len(lines) - height + 1 // the last one says which they are
	}
	s.above = min(s.above, s.most)
	if s.most == 0 {
		return lines[:min(len(lines), height)]
	}
	end := s.above + height - 1
	return append(slices.Clone(lines[s.above:end]),
		fmt.Sprintf("    lines %d to %d of %d, ↑↓ for the others", s.above+1, end, len(lines)))
}
