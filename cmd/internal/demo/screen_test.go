package demo

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
)

var update = flag.Bool("update", false, "write the golden file of testdata")

// told is what the sales of a tour came to, once.
func told() map[string]*result {
	rising := &tokens{4, 9, true}
	return map[string]*result{
		"no_lock": {
			Ended: "sold out", Stock: 200, Sold: 842, Oversell: 642, Processes: 1,
			Workers: 8, ElapsedMS: 1100.1,
		},
		"lock": {
			Ended: "sold out", Lock: true, Stock: 200, Sold: 200, Processes: 1, Workers: 8,
			ElapsedMS: 876.5, Tokens: rising,
			Key: "flash-sale", Backend: "mem://", TTLMS: 2000, Waits: waits{P50: 25.84, Max: 32.81},
		},
		"kill": {
			Ended: "time is up", Lock: true, Stock: 200, Sold: 1, Processes: 2, Workers: 1,
			ElapsedMS: 9, Tokens: rising, Lost: 1, Refused: 2,
			Key: "k", Backend: "redis://localhost:6379", TTLMS: 2000, Waits: waits{
				P50: 9.01,
				Max: 24.8,
			},
			Kill: &kill{Process: 2, PID: 4711, Token: 5, FreeMS: 2001.7, NextToken: 6},
		},
		"slow": {
			Ended: "sold out", Lock: true, Stock: 10, Sold: 10, Processes: 2, Workers: 2,
			Tokens: rising, Backend: "file:///tmp/x", TTLMS: 2000,
			Slowest: &slowest{
				"process 1, buyer 1", 351,
				[]held{
					{"process 2, pid 4711", 4711, 0, 287},
					{"process 1, buyer 2", 0, 287, 320},
					{"process 2, pid 4711", 4711, 321, 351},
				},
			},
		},
	}
}

func screenTo(w io.Writer) *screen { return &screen{to: w, width: 80} }

// What people read is as it was, and 80 columns wide at most.
func TestGoldenText(t *testing.T) {
	var b bytes.Buffer
	s := screenTo(&b)
	for _, name := range []string{"no_lock", "lock", "kill", "slow"} {
		r := told()[name]
		s.show("", r, r.title()+" "+r.story())
		s.draw(r)
	}
	some := told()
	s.conclude(some)
	delete(some, "kill") // as where there is no file://
	s.conclude(some)
	file := filepath.Join("testdata", "text.golden")
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || b.String() != string(want) {
		t.Errorf("%v; go test ./cmd/internal/demo -update writes it anew. It was\n%s\nand is\n%s",
			err, want, b.String())
	}
	for line := range strings.Lines(b.String()) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("over 80 columns: %s", line)
		}
	}
}

// On a terminal a line is written again while a sale goes on, and is coloured at its end; in a pipe
// it is written once.
func TestScreen(t *testing.T) {
	for _, c := range []struct {
		live, colour bool
		want         string
	}{
		{false, false, "1. sold 842 of 200\n   story\n"},
		{true, false, again + "1. sold 1 of 200" + again + "1. sold 842 of 200\n   story\n"},
		{true, true, again + "1. sold 1 of 200" + again +
			"1. \x1b[31msold 842 of 200\x1b[39m\n   story\n"},
	} {
		var b bytes.Buffer
		s := screenTo(&b)
		s.live, s.paint = c.live, terminal.Paint(c.colour)
		s.progress("1. sold 1 of 200")
		s.show("1. ", told()["no_lock"], "story")
		if b.String() != c.want {
			t.Errorf("live %v, coloured %v: %q, want %q", c.live, c.colour, b.String(), c.want)
		}
	}
	var b bytes.Buffer
	s := screenTo(&b)
	s.live, s.width = true, 10
	s.progress("a line that does not fit")
	if got := b.String(); got != again+"a line th" {
		t.Errorf("%q", got)
	}
}

// The page says what the terminal says, without its colours, is read again while there is more to
// come, and is there for this machine until it is stopped.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	s := screenTo(&b)
	s.live, s.paint = true, true
	stop, err := s.serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(b.String(), "http://")
	url, _, _ = strings.Cut("http://"+url, "\n")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, http.Header, string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return 0, nil, "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return res.StatusCode, res.Header, string(body), err
	}
	s.text("a <b>\n")
	s.progress("1. sold 5 of 200")
	_, h, body, err := get("")
	if err != nil || !strings.Contains(body, "<pre>a &lt;b&gt;\n1. sold 5 of 200</pre>") ||
		!strings.Contains(body, `http-equiv="refresh"`) {
		t.Errorf("%v, %s", err, body)
	}
	if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(url, "http://127.0.0.1:") ||
		csp != "default-src 'none'; style-src 'unsafe-inline'" {
		t.Errorf("at %s with %s", url, csp)
	}
	s.show("1. ", told()["lock"], "story")
	s.finish()
	if _, _, body, err = get(""); err != nil ||
		!strings.Contains(body, "\n1. sold 200 of 200\n   story\n</pre>") ||
		strings.Contains(body, "refresh") {
		t.Errorf("%v, %s", err, body)
	}
	if status, _, _, err := get("x"); err != nil || status != http.StatusNotFound {
		t.Errorf("another page: %d, %v", status, err)
	}
	stop()
	if _, _, _, err := get(""); err == nil {
		t.Error("it is there after its end")
	}
}

// A tour of which a sale goes wrong fails, and says in which part; one that is interrupted says so.
func TestTourFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var b bytes.Buffer
	err := screenTo(&b).tour(ctx)
	if !errors.Is(err, ErrInterrupted) || !strings.HasPrefix(err.Error(), "part 1 of the tour: ") ||
		strings.Contains(b.String(), "README") {
		t.Errorf("%v\n%s", err, &b)
	}
}
