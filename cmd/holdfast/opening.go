package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
)

// A storeError says of a store, in front of everything else, which it is and that it cannot be
// used. It wraps the error of [config.File.Open] or of a request, and holds nothing secret.
type storeError struct {
	Store   config.URL
	Err     error
	Opening bool
}

// Error says what a person would: cannot reach redis at localhost:6379, and why.
func (e *storeError) Error() string { return e.diagnose().says + ": " + reason(e.Err) }

// A diagnosis is what is wrong with a store, in a person's words, and what to do about it. Advice
// has %s where the place that the URL is from belongs.
type diagnosis struct{ says, advice string }

// orDoctor is not what the doctor itself says.
const orDoctor = "; \"holdfast doctor\" looks at more"

// What to do about TLS.
const (
	trustIt  = "let ca=FILE in %s name who has signed it"
	speakTLS = "see that it is up, speaks TLS, and is where %s says"
)

// diagnose finds out what is wrong. Of TLS the client libraries tell it in words alone.
func (e *storeError) diagnose() diagnosis {
	store, text, scheme := storeName(e.Store), e.Err.Error(), schemeOf(e.Store)
	contains := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool {
			return strings.Contains(text, part)
		})
	}
	overTLS := slices.Contains([]string{"rediss", "rueidiss", "etcds"}, scheme)
	switch {
	case errors.Is(e.Err, backend.ErrDenied):
		return diagnosis{
			store + " refuses this user",
			"look at the user and the password that %s gives, and at what that user may do",
		}
	case errors.Is(e.Err, backend.ErrUnsafe):
		return diagnosis{store + " may lose locks", remedy(e.Err)}
	case contains("is a node of a cluster"): // safeguard: node-of-a-cluster
		return diagnosis{
			store + " is a node of a Cluster",
			fmt.Sprintf("let %%s begin with %s+cluster://", scheme),
		}
	case contains("cluster support disabled"):
		return diagnosis{
			store + " is not a Cluster",
			fmt.Sprintf("let %%s begin with %s://", strings.Replace(scheme, "+cluster", "", 1)),
		}
	case strings.HasSuffix(scheme, "+sentinel") && contains("unknown command"):
		return diagnosis{
			store + " is not a Sentinel",
			"name Sentinels in %s, which listen on 26379 unless they are told otherwise",
		}
	case contains("DB index is out of range"):
		return diagnosis{
			store + " has no such database",
			"let the path in %s be one that it has: CONFIG GET databases says how many",
		}
	case errors.Is(e.Err, errors.ErrUnsupported):
		return diagnosis{store + " cannot do what is needed", remedy(e.Err)}
	case scheme == "redlock":
		return diagnosis{"cannot reach " + store, "see that they are up, and are where %s says"}
	case scheme == "file":
		return diagnosis{
			"cannot use " + store,
			"see that it has room, and that this user may use it, or name another store",
		}
	case errors.Is(e.Err, backend.ErrNotServing): // safeguard: store-up
		return diagnosis{store + " is up, and does not serve", "mend what it says" + orDoctor}
	case contains("certificate"):
		return diagnosis{store + " has a certificate that cannot be trusted", trustIt}
	case contains("TLS handshake", "handshake failed"), overTLS:
		return diagnosis{"cannot speak TLS with " + store, speakTLS}
	case e.Opening && contains("connection reset by peer", "EOF"):
		return diagnosis{
			store + " closes the connection",
			"see that it is up; if it wants TLS, " + scheme + "s:// in %s asks for it",
		}
	}
	return diagnosis{"cannot reach " + store, "see that it is up, and is where %s says"}
}

// adviceOn is what to do about err, of a store whose URL is from there.
func adviceOn(err error, from string) string {
	var store *storeError
	if errors.As(err, &store) {
		return strings.ReplaceAll(store.diagnose().advice, "%s", from)
	}
	return remedy(err)
}

// Unwrap returns the error that e is about.
func (e *storeError) Unwrap() error { return e.Err }

// openStore is f.Open, whose errors are a *storeError, unless the configuration is wrong. It logs
// nothing: commands say themselves which store they use.
func openStore(ctx context.Context, f config.File) (backend.Backend, locker.Config, error) {
	logger := f.Locker.Logger
	f.Locker.Logger = slog.New(slog.DiscardHandler)
	b, cfg, err := f.Open(ctx)
	cfg.Logger = logger
	if err != nil && !errors.Is(err, backend.ErrInvalid) {
		err = &storeError{f.Backend, err, true}
	}
	return b, cfg, err
}

// schemeOf is the scheme of a URL, in small letters however it was written; empty if it is no URL.
func schemeOf(raw config.URL) string {
	u, err := backend.ParseURL(raw.Reveal())
	if err != nil {
		return ""
	}
	return u.Scheme
}

// storeName is a store as people call it: redis at localhost:6379.
func storeName(raw config.URL) string {
	u, err := backend.ParseURL(raw.Reveal())
	if err != nil {
		return "the store"
	}
	kind := u.Scheme
	for _, known := range []string{"redis", "rueidis", "etcd"} {
		if strings.HasPrefix(kind, known) {
			kind = strings.ReplaceAll(known, "rueidis", "redis")
		}
	}
	switch where := u.Host + u.Path; {
	case kind == "redlock":
		return "a majority of the quorum's nodes"
	case kind == "file":
		return "the folder " + where
	case u.Host == "" && where != "":
		return kind + " at " + where
	case where != "":
		return kind + " at " + u.Host
	}
	return kind
}

// told is what is in our own messages, and a command has said in its own words.
var told = strings.NewReplacer(
	backend.ErrUnavailable.Error()+": ", "", backend.ErrDenied.Error()+": ", "",
	backend.ErrUnsafe.Error()+": ", "", backend.ErrForeign.Error()+": ", "",
	errors.ErrUnsupported.Error()+": ", "", "first look at the server: ", "",
	"the server is a node of a cluster, and the client is for one server: ", "",
	locker.ErrNotAcquired.Error()+": "+context.DeadlineExceeded.Error()+": ", "",
	locker.ErrNotAcquired.Error()+": ", "", "no answer from the store: ", "", "\n", "; ",
	context.DeadlineExceeded.Error(), "no answer in time")

// opened is what [backend.Open] says in front of an error, of a node of a quorum too, whose name
// may be in front of that already.
var opened = regexp.MustCompile(`backend: open (\S+: )`)

// reason is why a request or the opening of a store failed, without what the command says of that
// itself.
func reason(err error) string {
	var problem *config.Error
	if errors.As(err, &problem) {
		err = problem.Err
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
	}
	var request *locker.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	text := told.Replace(err.Error())
	for _, found := range opened.FindAllStringSubmatch(text, -1) {
		text = strings.ReplaceAll(text, found[0], found[1])
		text = strings.ReplaceAll(text, found[1]+found[1], found[1])
	}
	return text
}

// errNoFolder is of systems on which no folder keeps locks.
var errNoFolder = errors.New("a folder keeps locks on Linux only")

// fileURL is the URL of a folder as a store.
func fileURL(dir string) (config.URL, error) {
	return config.ParseURL((&url.URL{Scheme: "file", Path: dir}).String())
}
