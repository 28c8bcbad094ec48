package contention

import (
	"bytes"
	_ "embed" // the page's template
	"encoding/json"
	"html/template"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"ago": func(now, then time.Time) string {
		if then.IsZero() {
			return ""
		}
		return now.Sub(then).Round(time.Millisecond).String()
	},
}).Parse(pageText))

// ServeHTTP serves the page, and below it json and profile. Mount it on a path that ends in
// /locks/, such as /debug/locks/.
func (t *Tracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only to be looked at", http.StatusMethodNotAllowed)
		return
	}
	var (
		body bytes.Buffer
		kind string
		err  error
	)
	switch base := path.Base(r.URL.Path); {
	case base == "json":
		kind = "application/json"
		enc := json.NewEncoder(&body)
		enc.SetIndent("", "  ")
		err = enc.Encode(t.Snapshot())
	case base == "profile":
		kind = "application/octet-stream"
		w.Header().Set("Content-Disposition", `attachment; filename="locks.pb.gz"`)
		err = t.WriteProfile(&body)
	case strings.HasSuffix(r.URL.Path, "/"):
		kind = "text/html; charset=utf-8"
		err = page.Execute(&body, struct {
			Snapshot
			Host string
			PID  int
		}{t.Snapshot(), hostname(), os.Getpid()})
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
