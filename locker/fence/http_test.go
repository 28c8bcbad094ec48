package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/fence"
)

func byPath(r *http.Request) string { return r.URL.Path }

// send makes a request with a token; 0 sends none.
func send(t *testing.T, url, method string, token uint64) *http.Response {
	t.Helper()
	client := http.DefaultClient
	if token != 0 {
		client = &http.Client{Transport: fence.Transport{Token: token}}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reply.Body.Close(); client.CloseIdleConnections() })
	return reply
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A request has the token of the hold under which it is sent, and no other that it came with: of
// several nobody could say which is meant.
//
// covers: K4
func TestOneTokenForEachRequest(t *testing.T) {
	served := make(chan uint64, 1)
	srv := httptest.NewServer(fence.Handler(nil, nil,
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served <- fence.Token(r.Context())
		})))
	t.Cleanup(srv.Close)
	forwarded := func(by http.RoundTripper) (status int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Add(fence.Header, "9") // as it came
		if by == nil {
			r.Header.Add(fence.Header, "5")
			by = http.DefaultTransport
		}
		client := http.Client{Transport: by}
		reply, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reply.Body.Close(); client.CloseIdleConnections() }()
		return reply.StatusCode
	}
	if status := forwarded(fence.Transport{Token: 5}); status != http.StatusOK {
		t.Fatalf("by a holder: %d", status)
	}
	if token := <-served; token != 5 {
		t.Errorf("served with token %d, want that of the hold, 5", token)
	}
	if status := forwarded(nil); status != http.StatusBadRequest {
		t.Errorf("with two tokens: %d, want %d", status, http.StatusBadRequest)
	}
}

// covers: K4
func TestHTTP(t *testing.T) {
	var served []uint64
	srv := httptest.NewServer(fence.Handler(new(fence.Gate), byPath,
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served = append(served, fence.Token(r.Context()))
		})))
	t.Cleanup(srv.Close)
	for _, step := range []struct {
		method, path string
		token        uint64
		status       int
	}{
		{"PUT", "/a", 5, 200},
		{"PUT", "/a", 5, 200},
		{"PUT", "/a", 4, 412},
		{"PUT", "/b", 4, 200},
		{"GET", "/a", 4, 412},
		{"GET", "/a", 0, 200},
		{"HEAD", "/a", 0, 200},
		{"PUT", "/a", 0, 428},
		{"DELETE", "/a", 0, 428},
		{"GET", "/a", 6, 200},
		{"PUT", "/a", 5, 412},
	} {
		//nolint:bodyclose // send does, at the end of the test
		reply := send(t, srv.URL+step.path, step.method, step.token)
		if reply.StatusCode != step.status {
			t.Fatalf("%+v: %s %s", step, reply.Status, body(t, reply))
		}
		if err := fence.Refused(reply); errors.Is(err, fence.ErrStale) != (step.status == 412) {
			t.Errorf("%+v: %v", step, err)
		}
	}
	if got := fmt.Sprint(served); got != "[5 5 4 0 0 6]" {
		t.Errorf("served: %v", got)
	}
	for _, text := range []string{"-1", "0", "x", "9223372036854775808", "1 2"} {
		r, err := http.NewRequestWithContext(t.Context(), "PUT", srv.URL+"/a", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(fence.Header, text)
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = reply.Body.Close()
		if reply.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s", text, reply.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// What is not there is no key of the gate: else whoever makes up names fills the memory.
func TestHTTPWithoutAKey(t *testing.T) {
	var gate fence.Gate
	known := func(r *http.Request) string {
		if r.URL.Path == "/a" {
			return "a"
		}
		return ""
	}
	served := 0
	srv := httptest.NewServer(fence.Handler(&gate, known,
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			served++
		})))
	t.Cleanup(srv.Close)
	for path, status := range map[string]int{"/a": 200, "/made-up": 404} {
		//nolint:bodyclose // send does, at the end of the test
		reply := send(t, srv.URL+path, "PUT", 7)
		if reply.StatusCode != status || reply.StatusCode == 404 &&
			reply.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s %s", path, reply.Status, body(t, reply))
		}
	}
	if served != 1 {
		t.Errorf("%d requests were served, want the one of what is there", served)
	}
	if err := gate.Admit(t.Context(), "", 6, nil); err != nil { // 7 has not come to it
		t.Error(err)
	}
}

func TestRefusedSaysWhat(t *testing.T) {
	w := httptest.NewRecorder()
	fence.Refuse(w, fmt.Errorf("in my handler: %w",
		&fence.StaleError{Key: "sku-1", Token: 4, Newest: 5}))
	reply := w.Result()
	defer reply.Body.Close()
	var stale *fence.StaleError
	if err := fence.Refused(reply); !errors.As(err, &stale) ||
		*stale != (fence.StaleError{Key: "sku-1", Token: 4, Newest: 5}) {
		t.Errorf("%v: %+v", err, stale)
	}
	other := httptest.NewRecorder()
	other.Header().Set("Content-Type", "application/problem+json")
	other.WriteHeader(412)
	_, _ = other.WriteString(`{"type":"about:blank"}`)
	theirs := other.Result()
	defer theirs.Body.Close()
	if err := fence.Refused(theirs); err != nil {
		t.Errorf("somebody else's 412: %v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	held := &backend.HeldError{Holder: backend.Meta{Host: "db-7.internal"}}
	for _, test := range []struct {
		err    error
		status int
		after  string
	}{
		{fmt.Errorf("%w: %w", locker.ErrNotAcquired,
			&locker.HeldError{Wait: 1200 * time.Millisecond, Err: held}), 409, "2"},
		{
			&locker.WouldTimeoutError{
				RetryAfter: 3 * time.Second,
				Err:        &locker.HeldError{Err: held},
			},
			409, "3",
		},
		{&locker.HeldError{Err: held}, 409, ""},
		{held, 409, ""},
		{&backend.QuarantineError{RetryAfter: 10 * time.Second}, 503, "10"},
		{errors.New("db-7.internal does not answer"), 503, ""},
		{context.DeadlineExceeded, 503, ""},
	} {
		w := httptest.NewRecorder()
		fence.Refuse(w, test.err)
		if w.Code != test.status || w.Header().Get("Retry-After") != test.after {
			t.Errorf("%v: %d, Retry-After %q; want %d, %q", test.err, w.Code,
				w.Header().Get("Retry-After"), test.status, test.after)
		}
		if strings.Contains(w.Body.String(), "db-7") {
			t.Errorf("%v is told to the client: %s", test.err, w.Body)
		}
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestTransport(t *testing.T) {
	var seen *http.Request
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		seen = r
		return nil, io.EOF
	})
	r := httptest.NewRequestWithContext(t.Context(), "PUT", "/a", http.NoBody)
	//nolint:bodyclose // there is none
	_, err := fence.Transport{Token: 7, Base: base}.RoundTrip(r)
	//nolint:errorlint // as it is
	if err != io.EOF || seen.Header.Get("Fencing-Token") != "7" ||
		r.Header.Get("Fencing-Token") != "" {
		t.Errorf("%v: sent %v, the caller's has %v", err, seen.Header, r.Header)
	}
	content := &closing{Reader: strings.NewReader("x")}
	seen, r.Body = nil, content
	_, err = fence.Transport{Base: base}.RoundTrip(r) //nolint:bodyclose // there is none
	if !errors.Is(err, backend.ErrInvalid) || seen != nil || !content.closed {
		t.Errorf("without a token: %v, sent: %v, body closed: %v", err, seen != nil, content.closed)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
