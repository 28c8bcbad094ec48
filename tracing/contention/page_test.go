package contention_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color/palette"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing/contention"
)

// browsers are the names of a Chromium, in the order in which to look for one.
var browsers = []string{"chromium", "chromium-browser", "google-chrome"}

// browser is the path of one.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("there is no chromium here: run make deps")
	return ""
}

// dom returns a page as a headless browser has it after loading.
func dom(t *testing.T, url string) string {
	t.Helper()
	return browse(t, "--virtual-time-budget=2000", "--dump-dom", url)
}

// browse returns what a headless browser prints.
func browse(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser(t), append([]string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--hide-scrollbars",
		"--user-data-dir=" + t.TempDir(),
	}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// frame shows the page as wide as the request says, and writes how it looks there.
func frame(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, `<!doctype html>
<iframe src="/debug/locks/" style="width: %spx; height: 3000px; border: 0"></iframe>
<pre id="looks"></pre>
<script>
onload = () => {
	const page = document.querySelector('iframe').contentDocument;
	const root = page.documentElement, broken = [];
	for (const key of page.querySelectorAll('td:first-child > b')) {
		for (const word of key.childNodes) {
			const range = page.createRange();
			range.selectNodeContents(word);
			if (word.nodeType === Node.TEXT_NODE && range.getClientRects().length > 1) {
				broken.push(word.data);
			}
		}
	}
	const rects = page.querySelectorAll('.wait')[0]?.querySelectorAll('rect') ?? [];
	const bars = [...rects].map(r => r.getBoundingClientRect());
	const percent = x => Math.round(100 * (x - bars[0].left) / bars[0].width);
	looks.textContent = JSON.stringify({
		Keys: page.querySelectorAll('td:first-child > b').length,
		Width: root.scrollWidth, Broken: broken,
		Bars: bars.map(b => [percent(b.left), percent(b.right)]),
	});
};
</script>`, r.FormValue("width"))
}

// looks is what it writes.
type looks struct {
	Keys   int      // in the tables
	Width  int      // of the page, which may be more than of the frame
	Broken []string // words of keys
	Bars   [][2]int // of the first wait: from where to where, in percent of the first
}

// look returns how the page looks in so many pixels.
func look(t *testing.T, url string, width int) (is looks) {
	t.Helper()
	_, text, _ := strings.Cut(dom(t, fmt.Sprintf("%s/frame?width=%d", url, width)),
		`<pre id="looks">`)
	text, _, _ = strings.Cut(text, "</pre>")
	if err := json.Unmarshal([]byte(text), &is); err != nil {
		t.Fatal(err, text)
	}
	return is
}

// serve serves the page, and the frame.
func serve(t *testing.T, page http.Handler) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", page)
	mux.HandleFunc("/frame", frame)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

var tags = regexp.MustCompile(`<[^>]*>`)

// rows returns the text of a table's cells, row by row.
func rows(t *testing.T, page, table string) (all [][]string) {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<table id="`+table+`">`)
	body, _, closed := strings.Cut(rest, "</table>")
	if !ok || !closed {
		t.Fatalf("no table %s in\n%s", table, page)
	}
	body = strings.ReplaceAll(body, "<wbr>", "")
	for _, row := range strings.Split(body, "<tr>")[2:] { // after the head
		var cells []string
		for _, cell := range strings.Split(row, "<td")[1:] {
			cells = append(cells, strings.TrimSpace(tags.ReplaceAllString("<td"+cell, " ")))
		}
		all = append(all, cells)
	}
	return all
}

// The page says what is held and waited for, since when and because of whom, to somebody who looks
// at it in a browser. What keys and services are called is text there, whatever it looks like.
func TestPageInBrowser(t *testing.T) {
	testserver.OnlyInAll(t, "the page in a browser")
	tracker := contention.New(contention.Config{TraceURL: "http://jaeger/trace/{trace}"})
	end := shop(t, tracker)
	l := client(t, membackend.New(), tracker)
	long, err := l.Lock(t.Context(),
		"tenants/acme-gmbh-and-partners/warehouses/berlin-schoeneberg/shelves/4711:sku-0000481516")
	if err != nil {
		t.Fatal(err)
	}
	for ; ; time.Sleep(time.Millisecond) { // until all wait, and know for whom
		known := 0
		for _, w := range tracker.Snapshot().Waits {
			if w.Blocker != nil {
				known++
			}
		}
		if known == 3 {
			break
		}
	}
	url := serve(t, tracker)
	page := dom(t, url+"/debug/locks") // redirected to the page
	for _, width := range []int{1280, 480} {
		if is := look(t, url, width); is.Keys != 4 || is.Width > width || len(is.Broken) > 0 {
			t.Errorf("%d pixels wide: %+v", width, is)
		}
	}
	_ = long.Unlock()
	if err := l.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	end()

	held, waiting := rows(t, page, "held"), rows(t, page, "waiting")
	if len(held) != 2 || held[0][0] != "order-17&lt;x&gt;" || held[0][1] != "exclusive" ||
		held[0][2] != "1" || held[0][5] != "2" ||
		held[0][6] != "contention_test.shop" || !strings.Contains(page, "tracker_test.go:") {
		t.Errorf("held: %q", held)
	}
	byUs, byThem := 0, 0
	for _, w := range waiting {
		switch by := strings.Join(strings.Fields(w[3]), " "); {
		case w[0] == "order-17&lt;x&gt;" &&
			strings.HasPrefix(by, "this process, in contention_test.shop") &&
			strings.Contains(by, ", token ") &&
			w[1] == "2" && strings.Contains(w[6], "and 1 behind") &&
			strings.Contains(w[6], "1 ahead"):
			byUs++
		case w[0] == "invoice-4" && by == "billing &lt;b&gt; on far, pid 7 trace" && w[1] == "1" &&
			w[5] == "1":
			byThem++
		}
		for _, age := range []string{w[2], w[4]} {
			if d, err := time.ParseDuration(age); err != nil || d < 0 {
				t.Errorf("for %q in %q", age, w)
			}
		}
	}
	if byUs != 1 || byThem != 1 ||
		!strings.Contains(page, `href="http://jaeger/trace/`+theirTrace+`"`) {
		t.Errorf("waiting: %q", waiting)
	}
	if !strings.Contains(page, "Held: 2") || !strings.Contains(page, "Waiting: 3") ||
		strings.Contains(page, "<x>") || strings.Contains(page, "billing <b>") {
		t.Errorf("page:\n%s", page)
	}
}

// reserve and charge work under a lock, for so long.
func reserve(t *testing.T, l locker.Locker[struct{}], key string, d time.Duration) {
	if err := locker.Do(context.Background(), l, key, func(context.Context, struct{}) error {
		time.Sleep(d)
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func charge(t *testing.T, l locker.Locker[struct{}], key string, d time.Duration) {
	if err := locker.Do(context.Background(), l, key, func(context.Context, struct{}) error {
		time.Sleep(d)
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// busy is the page of a process that has waited for two others, and waits.
func busy(t *testing.T) *httptest.ResponseRecorder {
	b, tracker, others := membackend.New(), contention.New(contention.Config{}),
		contention.New(contention.Config{})
	near := client(t, b, tracker)
	billing, shipping := client(t, elsewhere{b, 4711, "billing"}, others),
		client(t, elsewhere{b, 815, "shipping"}, others)
	var wg sync.WaitGroup
	start := func(work func(*testing.T, locker.Locker[struct{}], string, time.Duration),
		l locker.Locker[struct{}], key string, d time.Duration,
	) {
		wg.Go(func() { work(t, l, key, d) })
		time.Sleep(10 * time.Millisecond)
	}
	start(charge, billing, "order-17", 150*time.Millisecond)
	start(reserve, shipping, "order-17", 90*time.Millisecond)
	for range 3 {
		start(reserve, near, "order-17", 60*time.Millisecond)
	}
	wg.Wait()
	start(charge, billing, "order-18", time.Second)
	start(charge, near, "customers/acme-gmbh/account", time.Second)
	for range 4 {
		start(reserve, near, "order-18", 0)
		start(charge, near, "customers/acme-gmbh/account", 0)
	}
	page := get(t, tracker, "/debug/locks/")
	wg.Wait()
	for _, l := range []*locker.Client[struct{}]{near, billing, shipping} {
		if err := l.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
	return page
}

// picture writes a picture of the page, in few colors, so that it is small.
func picture(t *testing.T, url, file string) {
	t.Helper()
	browse(t, "--disable-lcd-text", "--window-size=1280,815", "--screenshot="+file,
		url+"/debug/locks/")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	small, text := image.NewPaletted(seen.Bounds(), palette.Plan9), new(bytes.Buffer)
	draw.Draw(small, seen.Bounds(), seen, image.Point{}, draw.Src)
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(text,
		small); err != nil {
		t.Fatal(err)
	}
	//nolint:gosec // it is for everybody
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What is drawn is seen in a browser: who held, one after the other, each where it was in the wait.
// With HOLDFAST_PICTURES=docs/pictures this makes the picture of docs/tracing.md.
func TestBarsInBrowser(t *testing.T) {
	testserver.OnlyInAll(t, "bars in a browser")
	var page *httptest.ResponseRecorder
	synctest.Test(t, func(t *testing.T) { page = busy(t) })
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), page.Header())
		_, _ = w.Write(page.Body.Bytes())
	}))
	want := [][2]int{{0, 100}, {0, 34}, {34, 63}, {63, 81}, {81, 100}} // a wait of 320 ms
	if is := look(t, url, 1280); !slices.Equal(is.Bars, want) {
		t.Errorf("bars %v, want %v", is.Bars, want)
	}
	if folder := os.Getenv("HOLDFAST_PICTURES"); folder != "" {
		picture(t, url, filepath.Join(folder, "locks.png"))
	}
}

// A wait that is over is drawn with who held meanwhile, where in the wait that was; further waits
// for the key are behind it.
func TestBars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, tracker := membackend.New(), contention.New(contention.Config{})
		near, far := client(t, b, tracker), client(t, elsewhere{Backend: b}, nil)
		theirs, err := far.Lock(t.Context(), "invoice-4")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 2 { // one waits for two seconds, the other for three
			wg.Go(func() {
				g, err := near.Lock(t.Context(), "invoice-4")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				_ = g.Unlock()
			})
		}
		time.Sleep(2 * time.Second)
		_ = theirs.Unlock()
		wg.Wait()
		for _, l := range []*locker.Client[struct{}]{near, far} {
			if err := l.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
		page := get(t, tracker, "/debug/locks/").Body.String()
		_, drawn, _ := strings.Cut(page, `<div class="wait">`)
		drawn, more, _ := strings.Cut(drawn, `<details><summary>and 1 more waits for this key`)
		want := []string{
			`class="waited" width="100%" height="100%"/>`,
			`class="there" x="0.00%" width="66.67%" height="100%"/>`,
			`class="here" x="66.67%" width="33.33%" height="100%"/>`,
		}
		if got := strings.Split(drawn, "<rect ")[1:]; len(got) != 3 ||
			!strings.HasPrefix(got[0], want[0]) ||
			!strings.HasPrefix(got[1], want[1]) || !strings.HasPrefix(got[2], want[2]) {
			t.Errorf("drawn:\n%s", drawn)
		}
		if !strings.Contains(drawn, "billing &lt;b&gt; on far, pid 7") ||
			!strings.Contains(drawn, ">after 2s<") {
			t.Errorf("drawn:\n%s", drawn)
		}
		if strings.Count(more, `<div class="wait">`) != 1 ||
			!strings.Contains(more, `x="0.00%" width="100.00%"`) {
			t.Errorf("behind it:\n%s", more)
		}
	})
}
