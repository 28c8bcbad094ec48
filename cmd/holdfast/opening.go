package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
)

// A storeError says of a store, in front of everything else, which it is and that it cannot be used. It
// wraps the error of [config.File.Open] or of a request, and holds nothing secret.
type storeError struct {
	Store config.URL
	Err   error
}

// Error says what a person would: cannot reach redis at localhost:6379, and why.
func (e *storeError) Error() string {
	store := storeName(e.Store)
	switch {
	case errors.Is(e.Err, backend.ErrDenied):
		return store + " refuses this user: " + reason(e.Err)
	case errors.Is(e.Err, backend.ErrUnsafe):
		return store + " may lose locks: " + reason(e.Err)
	case errors.Is(e.Err, errors.ErrUnsupported):
		return store + " cannot do what is needed: " + reason(e.Err)
	}
	return "cannot reach " + store + ": " + reason(e.Err)
}

// Unwrap returns the error that e is about.
func (e *storeError) Unwrap() error { return e.Err }

// openStore is f.Open, whose errors are a *storeError, unless the configuration is wrong. It logs nothing:
// commands say themselves which store they use.
func openStore(ctx context.Context, f config.File) (backend.Backend, locker.Config, error) {
	logger := f.Locker.Logger
	f.Locker.Logger = slog.New(slog.DiscardHandler)
	b, cfg, err := f.Open(ctx)
	cfg.Logger = logger
	if err != nil && !errors.Is(err, backend.ErrInvalid) {
		err = &storeError{f.Backend, err}
	}
	return b, cfg, err
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
	backend.ErrUnavailable.Error()+": ", "", backend.ErrDenied.Error()+": ", "", backend.ErrUnsafe.Error()+": ", "",
	backend.ErrForeign.Error()+": ", "", "first look at the server: ", "",
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
