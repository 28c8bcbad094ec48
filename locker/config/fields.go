package config

import (
	"errors"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// DefaultBackend is the backend where none is configured. It keeps locks in this process's memory:
// enough for development and tests, and no protection against any other process.
const DefaultBackend = "mem://"

// A field is one key of the file. The table of them is all there is to know of keys: it decodes,
// prints and documents.
type field struct {
	key, kind, def, doc string

	// must refuses an empty value, which elsewhere means the default.
	must bool

	oneOf []string // what the value, or an item of a list, may be; nil for anything of its kind

	// set parses what stands in the file or the environment; for a list, one item of it.
	set func(f *File, text string) error
	// get returns what set took, without secrets; empty if nothing was set.
	get func(f *File) string
}

// env is the variable that overrides the key.
func (fd field) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(fd.key, ".", "_"))
}

// one is what a single value of the field is.
func (fd field) one() string {
	if fd.list() {
		return "text"
	}
	return fd.kind
}

// boolKind is the kind of a yes or a no.
const boolKind = "true or false"

func (fd field) list() bool { return fd.kind == "list" }

var fields = []field{
	{
		key: "backend", kind: "URL", def: DefaultBackend, must: true, set: setBackend,
		doc: "The store that keeps the locks. The program must have imported the package of its scheme.",
		get: func(f *File) string { return f.Backend.String() },
	},
	durationField("ttl", "`30s`, or the backend's shortest if that is longer",
		"How long a crashed holder blocks others. A living one renews every third of it. At most 24h.",
		func(f *File) *time.Duration { return &f.Locker.TTL },
		func(d time.Duration) error { return backend.ValidateTTL(d, 0) }),
	durationField("max_hold", "`0s`, no limit",
		"A hold that is older is renewed no more, however alive its holder is.",
		func(f *File) *time.Duration { return &f.Locker.MaxHold },
		func(d time.Duration) error { return atLeast(0, d) }),
	durationField("release_timeout", "the TTL, at most `30s`",
		"How long Unlock waits for a store that is silent.",
		func(f *File) *time.Duration { return &f.Locker.ReleaseTimeout }, positive),
	durationField("store_timeout", "the TTL, at most `30s`",
		"How long Lock keeps asking a store that gives no answer at all. A lock that is held is an answer.",
		func(f *File) *time.Duration { return &f.Locker.StoreTimeout }, positive),
	{
		key: "namespace", kind: "text", def: "none", set: setNamespace,
		doc: "Put before every key, so that services that share a store do not share locks by accident.",
		get: func(f *File) string { return f.Locker.Namespace },
	},
	{
		key: "service", kind: "text", def: "the executable's name", set: setService,
		doc: "Names this program to those who wait for its locks.",
		get: func(f *File) string { return f.Locker.Service },
	},
	{
		key: "wait.mode", kind: "text", def: autoMode, set: setMode, oneOf: modes,
		doc: "How a waiter learns that a lock may be free: `handoff` (first come, first served), `notify` (woken, then " +
			"competes), `poll`, or `auto` (the first of these that the backend can do).",
		get: func(f *File) string { return string(f.Locker.Wait.Mode) },
	},
	durationField("wait.fallback", "`1s`", "How long a waiter that is to be woken sleeps at most before it asks all the same.",
		func(f *File) *time.Duration { return &f.Locker.Wait.Fallback }, positive),
	durationField("wait.initial", "`5ms`", "The first sleep between two attempts in mode `poll`; it doubles up to `wait.max`.",
		func(f *File) *time.Duration { return &f.Locker.Wait.Initial }, positive),
	durationField("wait.max", "`500ms`", "The longest sleep between two attempts in mode `poll`, before jitter.",
		func(f *File) *time.Duration { return &f.Locker.Wait.Max }, positive),
	{
		key: "wait.passes", kind: "number", def: "`512`", set: setPasses,
		doc: "How many times in a row goroutines of one process may hand a lock on among themselves without asking the store. " +
			"`-1`: never, so that the store sees each acquisition.",
		get: func(f *File) string { return numberText(f.Locker.Wait.Passes) },
	},
	durationField("wait.pass_time", "`10ms`", "How long they may do so before the lock goes to whoever is next in the store's line.",
		func(f *File) *time.Duration { return &f.Locker.Wait.PassTime }, positive),
	{
		key: "wait.fail_fast", kind: boolKind, def: "`false`", set: setFailFast,
		doc: "Whether a wait fails at once when it is estimated to take longer than its caller has time for.",
		get: func(f *File) string {
			if !f.Locker.Wait.FailFast {
				return ""
			}
			return "true"
		},
	},
	{
		key: "require", kind: "list", def: "nothing", set: setRequire, oneOf: capabilities,
		doc: "What the backend must be able to do, or the program does not start: " + "`" + strings.Join(capabilities, "`, `") + "`.",
		get: requireText,
	},
	{
		key: "tracing.endpoint", kind: "URL", def: "none: no traces are sent", set: setEndpoint,
		doc: "The OTLP collector: `http://` or `https://` for OTLP over HTTP, `grpc://` or `grpcs://` (with TLS) for gRPC.",
		get: func(f *File) string { return f.Tracing.Endpoint.String() },
	},
}

func durationField(key, def, doc string, at func(*File) *time.Duration, check func(time.Duration) error) field {
	return field{
		key: key, kind: "duration", def: def, doc: doc,
		set: func(f *File, text string) error {
			d, err := time.ParseDuration(text)
			if err != nil { // err itself quotes the text
				return invalid("is not a duration, such as 30s, 1m30s or 500ms")
			}
			*at(f) = d
			return check(d)
		},
		get: func(f *File) string {
			if *at(f) == 0 {
				return ""
			}
			return at(f).String()
		},
	}
}

// positive refuses zero too: it would mean the default to the locker, and mean "at once" or "never"
// to a reader.
func positive(d time.Duration) error { return atLeast(1, d) }

func atLeast(least, d time.Duration) error {
	switch {
	case d < 0:
		return &backend.InvalidError{Value: d.String(), Reason: "is negative"}
	case d < least:
		return &backend.InvalidError{Value: d.String(), Reason: "is not positive; leave the key out for its default"}
	}
	return nil
}

func setBackend(f *File, text string) (err error) {
	f.Backend, err = ParseURL(text)
	return err
}

func setNamespace(f *File, text string) error {
	f.Locker.Namespace = text
	err := backend.ValidateKey(backend.Namespaced(text, "k"))
	if inv := (*backend.InvalidError)(nil); errors.As(err, &inv) {
		return invalid(inv.Reason) // without the value
	}
	return err
}

// maxService leaves room for the other texts of a backend.Meta.
const maxService = backend.MaxMeta / 4

func setService(f *File, text string) error {
	f.Locker.Service = text
	switch {
	case len(text) > maxService:
		return invalid("has " + strconv.Itoa(len(text)) + " bytes, over " + strconv.Itoa(maxService))
	case !utf8.ValidString(text):
		return invalid("is not UTF-8")
	}
	return nil
}

// autoMode is waiting.Auto's name here. That is the empty string, which could not override
// anything.
const autoMode = "auto"

var modes = []string{autoMode, string(waiting.Handoff), string(waiting.Notify), string(waiting.Poll)}

func setMode(f *File, text string) error {
	for _, name := range modes {
		if text == name {
			f.Locker.Wait.Mode = waiting.Mode(strings.TrimPrefix(name, autoMode))
			return nil
		}
	}
	return invalid("is none of " + strings.Join(modes, ", ") + didYouMean(text, modes))
}

func setPasses(f *File, text string) error {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil: // err itself quotes the text
		return invalid("is not a whole number")
	case n < -1 || n == 0 || n >= backend.MaxReserve:
		most := strconv.Itoa(backend.MaxReserve - 1)
		return &backend.InvalidError{Value: strconv.Itoa(n), Reason: "is neither -1 nor between 1 and " + most}
	}
	f.Locker.Wait.Passes = n
	return nil
}

func setFailFast(f *File, text string) error {
	switch strings.ToLower(text) { // YAML has True and TRUE as well
	case "true", "false":
		f.Locker.Wait.FailFast = strings.EqualFold(text, "true")
		return nil
	}
	return invalid("is neither true nor false")
}

// numberText is n, or nothing for the default.
func numberText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// capabilities are the names that require takes: the yes-or-no fields of backend.Capabilities in
// lower case. They are read off the type, so that a new one is known here at once.
var capabilities = func() (names []string) {
	for f := range reflect.TypeFor[backend.Capabilities]().Fields() {
		if f.Type.Kind() == reflect.Bool {
			names = append(names, strings.ToLower(f.Name))
		}
	}
	return names
}()

// capability is the field of c that name stands for, in any case; the zero Value if there is none.
func capability(c *backend.Capabilities, name string) reflect.Value {
	is := func(field string) bool { return strings.EqualFold(field, name) }
	v := reflect.ValueOf(c).Elem().FieldByNameFunc(is)
	if v.IsValid() && v.Kind() != reflect.Bool {
		return reflect.Value{}
	}
	return v
}

func setRequire(f *File, text string) error {
	v := capability(&f.Locker.Require, text)
	if !v.IsValid() {
		return invalid("is none of " + strings.Join(capabilities, ", ") + didYouMean(text, capabilities))
	}
	v.SetBool(true)
	return nil
}

func requireText(f *File) string {
	var names []string
	for _, name := range capabilities {
		if capability(&f.Locker.Require, name).Bool() {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

func setEndpoint(f *File, text string) error {
	u, err := url.Parse(text)
	if err != nil { // err itself quotes the text
		return invalid("is not a URL, such as http://localhost:4318")
	}
	port, portErr := strconv.Atoi(u.Port())
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "grpc" && u.Scheme != "grpcs":
		return invalid("has none of the schemes http://, https://, grpc://, grpcs://")
	case u.Hostname() == "":
		return invalid("has no host")
	case u.Port() != "" && (portErr != nil || port < 1 || port > 65535):
		return invalid("has a port outside of 1 to 65535")
	case strings.HasPrefix(u.Scheme, "grpc") && u.Path != "" && u.Path != "/":
		return invalid("has a path, which OTLP over gRPC does not")
	}
	f.Tracing.Endpoint, err = ParseURL(text)
	return err
}
