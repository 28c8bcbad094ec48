package config

import (
	"errors"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

// An Error is one problem of a configuration, and where it is. It holds nothing secret.
type Error struct {
	File string   // the path as it was given to Load; empty if no file is involved
	Line int      // in File, from 1; 0 if the problem is not at one line
	Key  string   // such as wait.mode; empty if the problem is not at one key
	Env  []string // the environment variables that the value came from
	Err  error    // a *[backend.InvalidError], the system's error, or that of [backend.Open]
}

// Error says where and what, in one line: "config: holdfast.yaml:3: ttl (from LEASE): is not a
// duration, such as 30s".
func (e *Error) Error() string {
	text := "config: " + e.File
	if e.Line > 0 {
		text += ":" + strconv.Itoa(e.Line)
	}
	if e.File != "" {
		text += ": "
	}
	switch from := strings.Join(e.Env, ", "); {
	case e.Key != "" && from != "":
		text += e.Key + " (from " + from + "): "
	case e.Key != "" || from != "":
		text += e.Key + from + ": "
	}
	return text + e.reason()
}

// Unwrap returns what is wrong, without where.
func (e *Error) Unwrap() error { return e.Err }

// reason is Err's text without the field, which is the key that Error has named already.
func (e *Error) reason() string {
	//nolint:errorlint // only an unwrapped one has nothing to say but its reason
	inv, ok := e.Err.(*backend.InvalidError)
	switch {
	case !ok:
		return e.Err.Error()
	case inv.Value != "":
		return inv.Value + " " + inv.Reason
	}
	return inv.Reason
}

// invalid is a problem whose field is filled in by whoever knows it.
func invalid(reason string) error { return &backend.InvalidError{Reason: reason} }

// maxErrors is how many problems are listed: a wrong file of 1 MiB may have a hundred thousand.
const maxErrors = 20

// join makes one error of errs. A single one stays as it is, and too many are cut.
func join(path string, errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	if more := len(errs) - maxErrors; more > 0 {
		last := &Error{File: path, Err: invalid("has " + strconv.Itoa(more) + " more problems")}
		errs = append(errs[:maxErrors:maxErrors], last)
	}
	return errors.Join(errs...)
}
