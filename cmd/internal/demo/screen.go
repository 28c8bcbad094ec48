package demo

import (
	"context"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
)

// A screen is where the demo is shown: standard output and, with --web, a page.
type screen struct {
	to    io.Writer
	width int
	json  bool
	live  bool // a line may be written again
	paint terminal.Paint

	mu   sync.Mutex // guards what follows
	all  strings.Builder
	now  string // the line that is still changing
	over bool
}

func newScreen(o Options) *screen {
	width, _ := terminal.Size(os.Stdout)
	text := o.Output != "json"
	return &screen{
		to: os.Stdout, width: min(width, 100), json: !text, live: text && terminal.Is(os.Stdout),
		paint: terminal.Colours(text && !o.NoColor),
	}
}

// text shows what is final.
func (s *screen) text(text string) { s.write(text, text) }

// write shows text, on a terminal as painted, in place of a line that was still changing.
func (s *screen) write(text, painted string) {
	if s.json {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live && s.now != "" {
		painted = again + painted
	}
	s.now = ""
	s.all.WriteString(text)
	fmt.Fprint(s.to, painted)
}

// again has a terminal write a line again: to its beginning, and clear it.
const again = "\r\x1b[K"

// progress shows a line that will be written again. It has room in one of a terminal.
func (s *screen) progress(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = line
	if s.live {
		fmt.Fprint(s.to, again+line[:min(len(line), s.width-1)])
	}
}

// show shows what came of a sale, in green if it went as it should.
func (s *screen) show(title string, r *result, story string) {
	headline, colour := fmt.Sprintf("sold %d of %d", r.Sold, r.Stock), terminal.Green
	if r.Oversell > 0 {
		colour = terminal.Red
	}
	story = "\n" + wrap(story, "   ", s.width)
	s.write(title+headline+story, title+s.paint.In(colour, headline)+story)
}

// wrap is text in lines of at most width columns, each behind indent.
func wrap(text, indent string, width int) string {
	return indent + strings.Join(terminal.Fold(text, width-len(indent)), "\n"+indent) + "\n"
}

// draw shows the slowest purchase of a sale.
func (s *screen) draw(r *result) {
	slow := r.Slowest
	if slow == nil {
		return
	}
	title := fmt.Sprintf("The slowest purchase waited %v. Who held the lock meanwhile:",
		brief(slow.ForMS))
	s.text(wrap(title, "   ", s.width))
	for line := range strings.Lines(slow.draw(s.width - 3)) {
		s.text("   " + line)
	}
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{{if not .Over}}<meta http-equiv="refresh" content="1">{{end}}
<title>holdfast demo</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; ` +
	`color: #222; background: #fff }
pre { font: 14px/1.3 monospace; overflow-x: auto }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #1b1b1b } }
</style>
<h1>What locks are for</h1>
<pre>{{.Text}}</pre>
<p>{{if .Over}}That was all. Ctrl-C in the terminal ends this page.{{else}}Going on …{{end}}</p>
</html>
`))

// ServeHTTP serves what was shown so far.
func (s *screen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	state := struct {
		Text string
		Over bool
	}{s.all.String() + s.now, s.over}
	s.mu.Unlock()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_ = page.Execute(w, state) // whoever has gone does not need it
}

// serve serves the page to this machine, and says where.
func (s *screen) serve(ctx context.Context) (stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l) // until stop
	}()
	fmt.Fprintf(s.to, "the same as a page, until Ctrl-C: http://%v/\n\n", l.Addr())
	return func() {
		_ = srv.Close()
		<-served
	}, nil
}

// finish says on the page that there is no more to come.
func (s *screen) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}
