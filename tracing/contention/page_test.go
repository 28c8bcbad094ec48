package contention_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

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
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser(t), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--user-data-dir="+t.TempDir(), "--virtual-time-budget=2000", "--dump-dom", url)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
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
	tracker := contention.New(contention.Config{TraceURL: "http://jaeger/trace/{trace}"})
	end := shop(t, tracker)
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
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", tracker)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	page := dom(t, srv.URL+"/debug/locks") // redirected to the page
	end()

	held, waiting := rows(t, page, "held"), rows(t, page, "waiting")
	if len(held) != 1 || held[0][0] != "order-17&lt;x&gt;" || held[0][1] != "exclusive" || held[0][4] != "2" || !strings.Contains(held[0][5], "tracker_test.go:") {
		t.Errorf("held: %q", held)
	}
	byUs, byThem := 0, 0
	for _, w := range waiting {
		switch by := strings.Join(strings.Fields(w[3]), " "); {
		case w[0] == "order-17&lt;x&gt;" && strings.HasPrefix(by, "this process, at ") && strings.Contains(by, held[0][5]+", token ") &&
			w[1] == "2" && strings.Contains(w[6], "and 1 behind") && strings.Contains(w[6], "1 ahead"):
			byUs++
		case w[0] == "invoice-4" && by == "billing &lt;b&gt; on far, pid 7 trace" && w[1] == "1" && w[5] == "1":
			byThem++
		}
		for _, age := range []string{w[2], w[4]} {
			if d, err := time.ParseDuration(age); err != nil || d < 0 {
				t.Errorf("for %q in %q", age, w)
			}
		}
	}
	if byUs != 1 || byThem != 1 || !strings.Contains(page, `href="http://jaeger/trace/`+theirTrace+`"`) {
		t.Errorf("waiting: %q", waiting)
	}
	if !strings.Contains(page, "Held: 1") || !strings.Contains(page, "Waiting: 3") || strings.Contains(page, "<b>") {
		t.Errorf("page:\n%s", page)
	}
}
