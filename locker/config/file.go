package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// A File is a configuration that was read and found good. It prints, logs and marshals without
// secrets. The zero File is the defaults. A program may change the fields before it calls
// [File.Open].
type File struct {
	// Path is the file's, as it was given to [Load]; empty if there was none.
	Path string

	// Backend is where locks are kept; the zero URL is [DefaultBackend].
	Backend URL

	// Locker is what [File.Open] returns. What was not configured is zero, for which package locker
	// has its defaults. Observer and Logger are the program's to set.
	Locker locker.Config

	// Tracing says where traces go. Package config only reads it, and Open sends none: the program
	// makes a tracer provider of it, as the demo does, so that programs without OpenTelemetry stay
	// without.
	Tracing Tracing

	from   map[string]origin // of what was loaded, by key
	loaded URL               // what Backend was, to know whether the program replaced it
}

// Tracing is the part of a [File] that is for a program's tracer provider.
type Tracing struct {
	// Endpoint is the OTLP collector, with scheme http, https, grpc or grpcs and a host; zero for
	// no tracing.
	Endpoint URL `json:"endpoint,omitzero"`
}

// String returns what is configured as key=value pairs, without secrets. Keys that have their
// default are left out.
func (f File) String() string {
	var pairs []string
	for _, fd := range fields {
		if text := fd.get(&f); text != "" {
			pairs = append(pairs, fd.key+"="+text)
		}
	}
	return strings.Join(pairs, " ")
}

// Load reads the YAML or JSON file at path, then the HOLDFAST_… variables, which win. With an empty
// path it reads the variables only. The error is an *[Error], or several that are joined; see the
// package comment. It opens no backend.
func Load(path string) (File, error) {
	l := &loader{path: path, lookup: os.LookupEnv, environ: os.Environ(), from: map[string]origin{}}
	l.file.Path = path
	l.environment()
	if path != "" {
		l.read()
	}
	l.together()
	if len(l.errs) > 0 {
		return File{}, join(path, l.errs)
	}
	l.file.from, l.file.loaded = l.from, l.file.Backend
	return l.file, nil
}

// FromEnv is [Load] without a file: the HOLDFAST_… variables and the defaults.
func FromEnv() (File, error) { return Load("") }

// Open opens the backend by [backend.Open], and returns it with the configuration of the lockers to
// be made on it. The program must have imported the backend's package, and closes the backend after
// its lockers. ctx bounds the opening only.
//
// The error is an *[Error] that wraps backend.Open's; for a scheme that nothing was imported for,
// it wraps [backend.ErrInvalid]. Whether the backend can do what the configuration requires is for
// locker.New to find.
func (f File) Open(ctx context.Context) (backend.Backend, locker.Config, error) {
	b, err := backend.Open(ctx, cmp.Or(f.Backend.Reveal(), DefaultBackend))
	if err == nil {
		return b, f.Locker, nil
	}
	// As the key has the name of the package whose error it is, that is told once.
	if cause := errors.Unwrap(err); cause != nil {
		err = fmt.Errorf("open %s: %w", backend.Redact(f.Backend.Reveal()), cause)
	}
	return nil, locker.Config{}, f.origin("backend").error(f.Path, "backend", err)
}

// origin is where the value of a key came from; zero for a default, and for a backend that the
// program has put in place of what was loaded.
func (f File) origin(key string) origin {
	if key == "backend" && f.Backend != f.loaded {
		return origin{}
	}
	return f.from[key]
}

// An origin is where a value came from.
type origin struct {
	line int // in the file; 0 if it is not from there
	env  []string
}

// error is err with its place. It fills in the field of an *[backend.InvalidError] that has none.
func (o origin) error(path, key string, err error) *Error {
	if inv, ok := err.(*backend.InvalidError); ok { //nolint:errorlint // a wrapped one is another package's
		inv.Field = cmp.Or(key, "configuration")
	}
	if o.line == 0 && len(o.env) > 0 {
		path = ""
	}
	return &Error{File: path, Line: o.line, Key: key, Env: o.env, Err: err}
}

// A loader collects the values and problems of one Load.
type loader struct {
	path    string
	lookup  func(string) (string, bool)
	environ []string
	file    File
	from    map[string]origin // by key; a key that is not here was not set
	errs    []error
}

func (l *loader) fail(o origin, key string, err error) {
	l.errs = append(l.errs, o.error(l.path, key, err))
}

// together checks what two keys must not be together.
func (l *loader) together() {
	_, err := l.file.Locker.Wait.WithDefaults()
	o, set := l.from["wait.max"]
	if err == nil || !set || len(l.errs) > 0 { // if one of the keys is wrong by itself, that was reported
		return
	}
	initial := cmp.Or(l.file.Locker.Wait.Initial, waiting.DefaultInitial)
	l.fail(o, "wait.max", &backend.InvalidError{
		Value: l.file.Locker.Wait.Max.String(), Reason: "is below wait.initial, which is " + initial.String(),
	})
}
