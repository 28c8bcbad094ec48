package config

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// A field is one key of the file. The type of what it sets decides how a value is parsed and
// printed; schema.json has what the key means and what its values look like.
type field struct {
	key string
	def string          // the default in words
	at  func(*File) any // a pointer to what the key sets
}

var fields = []field{
	{"backend", "none: it must be given", func(f *File) any { return &f.Backend }},
	{"ttl", "`30s`, or the backend's shortest if that is longer", func(f *File) any {
		return &f.Locker.TTL
	}},
	{"max_hold", "`0s`, no limit", func(f *File) any { return &f.Locker.MaxHold }},
	{"release_timeout", "the TTL, at most `5s` (`30s` to save)", func(f *File) any {
		return &f.Locker.ReleaseTimeout
	}},
	{"store_timeout", "the TTL, at most `30s`", func(f *File) any {
		return &f.Locker.StoreTimeout
	}},
	{"namespace", "none", func(f *File) any { return &f.Locker.Namespace }},
	{"service", "`OTEL_SERVICE_NAME`, or the executable's name", func(f *File) any {
		return &f.Locker.Service
	}},
	{"classes", "none", func(f *File) any { return &f.Locker.Classes }},
	{"break_deadlocks", "`false`", func(f *File) any { return &f.Locker.BreakDeadlocks }},
	{"wait.mode", autoMode, func(f *File) any { return &f.Locker.Wait.Mode }},
	{"wait.fallback", "`1s`", func(f *File) any { return &f.Locker.Wait.Fallback }},
	{"wait.initial", "`5ms`", func(f *File) any { return &f.Locker.Wait.Initial }},
	{"wait.max", "`500ms`", func(f *File) any { return &f.Locker.Wait.Max }},
	{"wait.passes", "`512`", func(f *File) any { return &f.Locker.Wait.Passes }},
	{"wait.pass_time", "`10ms`", func(f *File) any { return &f.Locker.Wait.PassTime }},
	{"wait.fail_fast", "`false`", func(f *File) any { return &f.Locker.Wait.FailFast }},
	{"require", "nothing", func(f *File) any { return &f.Locker.Require }},
	{"tracing.endpoint", "none: no traces are sent", func(f *File) any {
		return &f.Tracing.Endpoint
	}},
}

// env is the variable that overrides the key.
func (fd field) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(fd.key, ".", "_"))
}

// must says whether an empty value is refused, which elsewhere means the default.
func (fd field) must() bool { return fd.key == "backend" }

// list says whether the key takes a list, of which set is given one item at a time.
func (fd field) list() bool { return fd.key == "require" || fd.key == "classes" }

// kind is what errors call a value of the key, or an item of its list.
func (fd field) kind() string {
	switch fd.at(new(File)).(type) {
	case *URL:
		return "URL"
	case *time.Duration:
		return "duration"
	case *int:
		return "number"
	case *bool:
		return "true or false"
	}
	return "text"
}

// get returns what was set, without secrets; empty if nothing was.
func (fd field) get(f *File) string {
	at := fd.at(f)
	switch at := at.(type) {
	case *backend.Capabilities:
		names, flags := capabilities(at)
		return strings.Join(slices.DeleteFunc(names, func(name string) bool {
			return !flags[name].Bool()
		}), ",")
	case *[]string:
		return strings.Join(*at, ",")
	}
	if v := reflect.ValueOf(at).Elem(); !v.IsZero() {
		return fmt.Sprint(v.Interface())
	}
	return ""
}

// set parses what stands in the file or the environment. No error of it quotes the text.
func (fd field) set(f *File, text string) (err error) {
	switch at := fd.at(f).(type) {
	case *URL:
		if fd.key == "tracing.endpoint" {
			err = checkEndpoint(text)
		}
		if err == nil {
			*at, err = ParseURL(text)
		}
	case *time.Duration:
		*at, err = fd.duration(text)
	case *int:
		*at, err = passes(text)
	case *bool:
		*at = strings.EqualFold(text, "true") // YAML has True and TRUE as well
		if !*at && !strings.EqualFold(text, "false") {
			err = invalid("is neither true nor false")
		}
	case *waiting.Mode:
		*at = waiting.Mode(strings.TrimPrefix(text, autoMode))
		if !slices.Contains(modes, text) {
			err = noneOf(modes, text)
		}
	case *backend.Capabilities:
		names, flags := capabilities(at)
		flag, known := flags[strings.ToLower(text)]
		if !known {
			return noneOf(names, text)
		}
		flag.SetBool(true)
	case *[]string:
		*at = append(*at, text)
		err = fd.checkText(text)
	case *string:
		*at = text
		err = fd.checkText(text)
	}
	return err
}

// duration parses a duration, and refuses what the locker would refuse later and with less of a
// place.
func (fd field) duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	refused := func(reason string) error {
		return &backend.InvalidError{Value: d.String(), Reason: reason}
	}
	switch {
	case err != nil: // which quotes the text
		err = invalid("is not a duration, such as 30s, 1m30s or 500ms")
	case fd.key == "ttl":
		err = backend.ValidateTTL(d, 0)
	case d < 0:
		err = refused("is negative")
	// Zero is the locker's default, and a reader might take it for "at once" or "never".
	case d == 0 && fd.key != "max_hold":
		err = refused("is not positive; leave the key out for its default")
	// which [waiting.Config.WithDefaults] refuses.
	case d > backend.MaxTTL && strings.HasPrefix(fd.key, "wait."):
		err = refused("is over " + backend.MaxTTL.String())
	}
	return d, err
}

// passes parses the number that is wait.passes. What is above its limit a cohort could not keep.
func passes(text string) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil: // which quotes the text
		err = invalid("is not a whole number")
	case n < -1 || n == 0 || n >= backend.MaxReserve:
		most := strconv.Itoa(backend.MaxReserve - 1)
		err = &backend.InvalidError{
			Value:  strconv.Itoa(n),
			Reason: "is neither -1 nor between 1 and " + most,
		}
	}
	return n, err
}

// autoMode is waiting.Auto's name here. That is the empty string, which could not override
// anything.
const autoMode = "auto"

var modes = []string{
	autoMode, string(waiting.Handoff), string(waiting.Notify),
	string(waiting.Poll),
}

// noneOf is the error of a name that is not known.
func noneOf(known []string, text string) error {
	return invalid("is none of " + strings.Join(known, ", ") + didYouMean(text, known))
}

// capabilities are the fields of c that are yes or no, by their names in lower case. They are read
// off the type, so that a new one is known here at once.
func capabilities(c *backend.Capabilities) (names []string, flags map[string]reflect.Value) {
	flags = map[string]reflect.Value{}
	for f, v := range reflect.ValueOf(c).Elem().Fields() {
		if name := strings.ToLower(f.Name); v.Kind() == reflect.Bool {
			names, flags[name] = append(names, name), v
		}
	}
	return names, flags
}

// maxService leaves room for the other texts of a backend.Meta.
const maxService = backend.MaxMeta / 4

// checkText refuses a pattern that locker.New would refuse, and a namespace or a service that a
// store would refuse at the first lock.
func (fd field) checkText(text string) error {
	var inv *backend.InvalidError
	switch {
	case fd.list():
		if _, err := locker.ClassOf(text); errors.As(err, &inv) {
			return invalid(inv.Reason) // without the value
		}
	case fd.key == "namespace":
		if errors.As(backend.ValidateKey(backend.Namespaced(text, "k")), &inv) {
			return invalid(inv.Reason) // without the value
		}
	case len(text) > maxService:
		return invalid("has " + strconv.Itoa(len(text)) + " bytes, over " +
			strconv.Itoa(maxService))
	case !utf8.ValidString(text):
		return invalid("is not UTF-8")
	}
	return nil
}

// checkEndpoint refuses what an OTLP exporter would drop the traces for in silence, or send
// elsewhere.
func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	if err != nil { // which quotes the text
		return invalid("is not a URL, such as http://localhost:4318")
	}
	port, portErr := strconv.Atoi(u.Port())
	switch {
	case !slices.Contains([]string{"http", "https", "grpc", "grpcs"}, u.Scheme):
		return invalid("has none of the schemes http://, https://, grpc://, grpcs://")
	case u.Hostname() == "":
		return invalid("has no host")
	case u.Port() != "" && (portErr != nil || port < 1 || port > 65535):
		return invalid("has a port outside of 1 to 65535")
	case strings.HasPrefix(u.Scheme, "grpc") && u.Path != "" && u.Path != "/":
		return invalid("has a path, which OTLP over gRPC does not")
	}
	return nil
}
