package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.yaml.in/yaml/v3"

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

	// Backend is where locks are kept. There is no default: of the zero URL, Open is an error.
	Backend URL

	// Locker is what [File.Open] returns. What was not configured is zero, for which package locker
	// has its defaults. Observer and Logger are the program's to set; Open uses the Logger.
	Locker locker.Config

	// Tracing says where traces go. Package config only reads it, and Open sends none: the program
	// makes a tracer provider of it, as the demo does, so that programs without OpenTelemetry stay
	// without.
	Tracing Tracing

	from    map[string]origin // of what was loaded, by key
	loaded  URL               // what Backend was, to know whether the program replaced it
	strange []string          // variables with our prefix that nobody knows
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
	l := &loader{File: File{Path: path, from: map[string]origin{}}}
	l.environment()
	if path != "" {
		l.read()
	}
	l.together()
	if len(l.errs) > 0 {
		return File{}, join(path, l.errs)
	}
	l.loaded = l.Backend
	return l.File, nil
}

// FromEnv is [Load] without a file: the HOLDFAST_… variables and the defaults.
func FromEnv() (File, error) { return Load("") }

// Open opens the backend by [backend.Open], and returns it with the configuration of the lockers to
// be made on it. The program must have imported the backend's package, and closes the backend after
// its lockers. ctx bounds the opening only.
//
// It logs, to f.Locker.Logger or else [slog.Default], which store it opened, at level Info, and the
// HOLDFAST_… variables that Load did not know, at level Debug.
//
// The error is an *[Error] that wraps backend.Open's; it wraps [backend.ErrInvalid] if there is no
// Backend, or a scheme that nothing was imported for. Whether the backend can do what the
// configuration requires is for locker.New to find.
func (f File) Open(ctx context.Context) (backend.Backend, locker.Config, error) {
	if f.Backend.IsZero() {
		// Safety: no store is taken in place of one that was not named. Locks in this process's
		// memory would be granted as ever, and exclude no other process.
		return nil, locker.Config{}, origin{}.error(f.Path, "backend", invalid(noBackend))
	}
	b, err := backend.Open(ctx, f.Backend.Reveal())
	if err == nil {
		f.log(ctx)
		return b, f.Locker, nil
	}
	// As the key has the name of the package whose error it is, that is told once.
	if cause := errors.Unwrap(err); cause != nil {
		err = fmt.Errorf("open %s: %w", backend.Redact(f.Backend.Reveal()), cause)
	}
	o, _ := f.origin("backend")
	// with the parameter that is not known, or a value that is not taken
	var wrong *backend.InvalidError
	if errors.As(err, &wrong) && wrong.Value != "" {
		// safeguard: suspect-parameter
		o = o.suspects(func(value string) bool { return strings.Contains(value, wrong.Value) })
	}
	return nil, locker.Config{}, o.error(f.Path, "backend", err)
}

// noBackend is what to do about it, as there is no default.
const noBackend = "no store is configured: set HOLDFAST_BACKEND to its URL, such as " +
	"redis://host:6379; " +
	"file:///var/lock/app is for the processes of one machine, and mem:// for this process alone"

// log says which store it is, so that a wrong one is seen before its locks exclude nobody.
func (f File) log(ctx context.Context) {
	logger := cmp.Or(f.Locker.Logger, slog.Default())
	if f.strange != nil {
		logger.DebugContext(ctx, "holdfast: unknown variables are not used", "variables", f.strange)
	}
	logger.InfoContext(ctx, "holdfast: store opened", "store", f.Backend.String())
}

// origin is where the value of a key came from, if what the file or the environment says of it is
// used: not for a default, nor for a backend that the program has put in place of what was loaded.
func (f File) origin(key string) (o origin, given bool) {
	if key == "backend" && f.Backend != f.loaded {
		return origin{}, false
	}
	o, given = f.from[key]
	return o, given
}

// An origin is where a value came from.
type origin struct {
	line  int // in the file; 0 if it is not from there
	env   []string
	unset []string // those of env that are not set, or empty, so that a default is used
}

// error is err with its place. It fills in the field of a *[backend.InvalidError] that has none.
func (o origin) error(path, key string, err error) *Error {
	//nolint:errorlint // a wrapped one is another package's
	if inv, ok := err.(*backend.InvalidError); ok {
		inv.Field = cmp.Or(key, "configuration")
	}
	if o.line == 0 && o.env != nil {
		path = ""
	}
	return &Error{File: path, Line: o.line, Key: key, Env: o.env, Err: err}
}

// A loader collects the values and problems of one Load. What is set already is in from, by key:
// the environment is read first, so that the file does not set it again.
type loader struct {
	File
	errs []error
}

// fail reports a problem, with where its value came from.
func (l *loader) fail(o origin, key string, err error) {
	l.errs = append(l.errs, o.error(l.Path, key, err))
}

// refuse reports a node of the file.
func (l *loader) refuse(n *yaml.Node, key, reason string) {
	l.fail(origin{line: n.Line}, key, invalid(reason))
}

// together checks what two keys must not be together. If one is wrong by itself, that was reported.
func (l *loader) together() {
	longest, initial := l.Locker.Wait.Max, cmp.Or(l.Locker.Wait.Initial, waiting.DefaultInitial)
	if longest != 0 && longest < initial && len(l.errs) == 0 {
		reason := "is below wait.initial, which is " + initial.String()
		l.fail(l.from["wait.max"], "wait.max",
			&backend.InvalidError{Value: longest.String(), Reason: reason})
	}
}
