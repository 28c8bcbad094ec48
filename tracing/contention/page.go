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
	"strconv"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").
	Funcs(template.FuncMap{"brief": brief}).Parse(pageText))

// byKey returns those who wait for each key, the oldest first, from all in that order.
func byKey(waits []Lock) (all [][]Lock) {
	at := map[string]int{}
	for _, w := range waits {
		if w.Ahead == 0 {
			at[w.Key] = len(all)
			all = append(all, nil)
		}
		all[at[w.Key]] = append(all[at[w.Key]], w)
	}
	return all
}

// traceURL is where a trace is shown, or "".
func (t *Tracker) traceURL(id string) string {
	if id == "" || t.cfg.TraceURL == "" {
		return ""
	}
	return strings.ReplaceAll(t.cfg.TraceURL, "{trace}", id)
}

// brief is a duration for people, never negative.
func brief(d time.Duration) time.Duration { return max(d, 0).Round(time.Millisecond) }

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
		err = t.WriteProfile(r.Context(), &body, base == "holders", time.Duration(seconds)*time.Second)
	case strings.HasSuffix(r.URL.Path, "/"):
		kind = "text/html; charset=utf-8"
		host, _ := os.Hostname()
		s := t.Snapshot()
		err = page.Execute(&body, struct {
			Snapshot
			Keys  [][]Lock
			Host  string
			PID   int
			Trace func(id string) string
		}{s, byKey(s.Waits), host, os.Getpid(), t.traceURL})
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
