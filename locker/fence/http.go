package fence

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// Header is the header that carries a fencing token, in decimal digits.
const Header = "Fencing-Token"

// A Transport sends the token of a hold with each request. Made in a [locker.Binder], the client is
// what a guard protects:
//
//	bind := func(_ context.Context, h locker.Hold) (*http.Client, error) {
//		return &http.Client{Transport: fence.Transport{Token: h.Token}}, nil
//	}
//
// Its connections are those of Base, so one for each hold costs nothing. Make requests with the
// guard's Context, so that they end with the hold.
type Transport struct {
	Token uint64            // of the hold; a request without one fails
	Base  http.RoundTripper // makes the requests; nil is http.DefaultTransport
}

// RoundTrip is that of [http.RoundTripper].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := check(r.URL.Path, t.Token); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context()) // the caller's must not be changed
	// Whatever it came with. safeguard: fence-own-token
	r.Header.Set(Header, strconv.FormatUint(t.Token, 10))
	if t.Base != nil {
		return t.Base.RoundTrip(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// Handler checks each request's token before next serves it; next finds the token by [Token]. key
// names the lock that protects what a request is about; "" says that there is no such thing, and
// the request is refused with 404. In gate, requests of one key run in the order of their tokens,
// and an older one than the newest is refused with 412; see [Gate.Admit], and give the server a
// ReadTimeout, as a request that hangs in next keeps newer ones waiting. With a nil gate the token
// is only read: next is to check it, say by [Admit] in its transaction, and to answer by [Refuse].
//
// A token that is none is refused with 400, and so are several. A request without one is refused
// with 428, but for GET, HEAD and OPTIONS, which then pass without a look at the gate. (What is
// read to be written back needs the token.)
//
// The gate keeps some 100 bytes for each key until the process ends. It cannot drop one without
// letting in who is late, so have key return "" for what is not there, rather than whatever the
// request says, and authenticate clients in front: who may send a token may also send one that is
// higher than any, which refuses all others.
func Handler(gate *Gate, key func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := strings.Join(r.Header.Values(Header), ", ") // safeguard: fence-one-token
		if text == "" {
			switch r.Method {
			case http.MethodGet, http.MethodHead, http.MethodOptions:
				next.ServeHTTP(w, r)
			default:
				problem{
					Title: "fencing token required", Status: http.StatusPreconditionRequired,
					Detail: "send " + Header,
				}.write(w)
			}
			return
		}
		token, err := strconv.ParseUint(text, 10, 63)
		if err != nil || token == 0 {
			problem{
				Title: "no fencing token", Status: http.StatusBadRequest,
				Detail: Header + " is not a positive number",
			}.write(w)
			return
		}
		var k string
		if gate != nil {
			if k = key(r); k == "" {
				problem{Title: "not found", Status: http.StatusNotFound}.write(w)
				return
			}
		}
		serve := func() error {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tokenKey{}, token)))
			return nil
		}
		if gate == nil {
			_ = serve()
		} else if err := gate.Admit(r.Context(), k, token, serve); err != nil {
			Refuse(w, err)
		}
	})
}

type tokenKey struct{}

// Token returns the token of the request that ctx belongs to, see [Handler]; 0 if it has none.
func Token(ctx context.Context) uint64 {
	token, _ := ctx.Value(tokenKey{}).(uint64)
	return token
}

// A problem is a response of RFC 9457.
type problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Key    string `json:"key,omitempty"`
	Token  uint64 `json:"token,omitempty"`
	Newest uint64 `json:"newest,omitempty"`
}

const (
	problemJSON  = "application/problem+json"
	staleProblem = "urn:holdfast:stale-token"
)

func (p problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", problemJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone, or has it
}

// Refuse answers a request that could not be done because of err, with a problem of RFC 9457:
//
//   - an [ErrStale]: 412, as the token will not do again;
//   - a lock that the handler itself could not get, as another holds it: 409, with Retry-After if
//     there is an estimate of the wait, see [locker.HeldError];
//   - everything else: 503.
//
// It does not tell who holds, nor the text of an error that is not this package's.
func Refuse(w http.ResponseWriter, err error) {
	var stale *StaleError
	if errors.As(err, &stale) {
		problem{
			Type: staleProblem, Title: ErrStale.Error(), Status: http.StatusPreconditionFailed,
			Detail: "lock again, and read again", Key: stale.Key, Token: stale.Token,
			Newest: stale.Newest,
		}.write(w)
		return
	}
	p := problem{Title: "not done", Status: http.StatusServiceUnavailable}
	if errors.Is(err, backend.ErrHeld) {
		p = problem{Title: "locked", Status: http.StatusConflict, Detail: "another holds the lock"}
	}
	if wait := retryAfter(err); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	p.write(w)
}

// retryAfter is how long err says that a wait is likely to be; 0 if it does not.
func retryAfter(err error) time.Duration {
	var vain *locker.WouldTimeoutError
	var held *locker.HeldError
	var quarantine *backend.QuarantineError
	switch {
	case errors.As(err, &vain):
		return vain.RetryAfter
	case errors.As(err, &held):
		return held.Wait
	case errors.As(err, &quarantine):
		return quarantine.RetryAfter
	}
	return 0
}

// Refused returns the [ErrStale] that a response of [Refuse] tells of, and nil for any other. It
// reads the body of such a response; the caller closes it.
func Refused(r *http.Response) error {
	form, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.StatusCode != http.StatusPreconditionFailed || err != nil || form != problemJSON {
		return nil
	}
	var p problem
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&p); err != nil ||
		p.Type != staleProblem {
		return nil //nolint:nilerr // somebody else's problem
	}
	return &StaleError{Key: p.Key, Token: p.Token, Newest: p.Newest}
}
