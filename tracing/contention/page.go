package contention

import (
	"bytes"
	"cmp"
	_ "embed" // the page's template
	"encoding/json"
	"html/template"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/blame"
)

//go:embed page.html
var pageText string

// page is parsed when it is first looked at, as in most processes it never is.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"brief": brief, "parts": parts, "bars": bars,
		// ServeHTTP has them
		"trace": func(string) string { return "" }, "ago": func(Lock) time.Duration { return 0 },
	}).Parse(pageText))
})

// brief is a duration for people, never negative.
func brief(d time.Duration) time.Duration { return blame.Brief(max(d, 0)) }

// byKey returns those of each key, in their order.
func byKey(locks []Lock) (all [][]Lock) {
	at := map[string]int{}
	for _, l := range locks {
		i, known := at[l.Key]
		if !known {
			i = len(all)
			at[l.Key], all = i, append(all, nil)
		}
		all[i] = append(all[i], l)
	}
	return all
}

// separators are behind what the page may break a name.
var separators = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[^/:.|#=@~_-]*[/:.|#=@~_-]*`)
})

// parts are those of a key or a function that stay on one line.
func parts(name string) []string { return separators().FindAllString(name, -1) }

// A bar is a part of a wait as the page draws it: where it begins and how long it is, in percent.
type bar struct {
	Held
	After, For time.Duration // since the wait began
	X, Width   float64
}

// bars are those of a wait that is over, the earliest first.
func bars(wait Lock) (all []bar) {
	const least = 0.3 // else it is not seen
	percent := func(d time.Duration) float64 {
		return 100 * d.Seconds() / max(wait.For, 1).Seconds()
	}
	for _, h := range wait.Held {
		b := bar{Held: h, After: h.From.Sub(wait.Since), For: h.To.Sub(h.From)}
		b.X, b.Width = min(percent(b.After), 100-least), max(percent(b.For), least)
		all = append(all, b)
	}
	slices.SortStableFunc(all, func(a, b bar) int { return cmp.Compare(a.After, b.After) })
	return all
}

// ServeHTTP serves the page, and below it json, profile and holders. Mount it on a path that ends
// in /locks/, such as /debug/locks/.
func (t *Tracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	var kind string
	var err error
	switch base := path.Base(r.URL.Path); {
	case base == "json":
		kind = "application/json"
		enc := json.NewEncoder(&body)
		enc.SetIndent("", "  ")
		err = enc.Encode(t.Snapshot())
	case base == "profile" || base == "holders":
		var seconds int // 0: since the Tracker was made
		seconds, err = strconv.Atoi(cmp.Or(r.FormValue("seconds"), "0"))
		if err != nil || seconds < 0 || seconds > 3600 {
			http.Error(w, "seconds must be 0 to 3600", http.StatusBadRequest)
			return
		}
		kind = "application/octet-stream"
		w.Header().Set("Content-Disposition", `attachment; filename="`+base+`.pb.gz"`)
		err = t.WriteProfile(r.Context(), &body, base == "holders",
			time.Duration(seconds)*time.Second)
	case strings.HasSuffix(r.URL.Path, "/"):
		kind = "text/html; charset=utf-8"
		host, _ := os.Hostname()
		s := t.Snapshot()
		own := template.Must(page().Clone()).Funcs(template.FuncMap{
			"trace": func(id string) string {
				return strings.ReplaceAll(t.cfg.TraceURL, "{trace}", id)
			},
			"ago": func(l Lock) time.Duration { return brief(s.At.Sub(l.Since.Add(l.For))) },
		})
		err = own.Execute(&body, struct {
			Snapshot
			Host                            string
			PID                             int
			Waiting, Held, Waited, Released [][]Lock
		}{
			s, host, os.Getpid(), byKey(s.Waits), byKey(s.Holds), byKey(s.LongestWaits),
			byKey(s.LongestHolds),
		})
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write(body.Bytes()) // whoever has gone does not need it
}
