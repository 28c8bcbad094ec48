package config

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-go/holdfast/backend"
)

const secret = "s3cr3t-w0rd"

// printings is v in every form that ends up in a log.
func printings(t testing.TB, v any) []string {
	t.Helper()
	var out []string
	for _, verb := range []string{
		"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p",
		"%T", "%10.3v",
	} {
		out = append(out, fmt.Sprintf(verb, v))
	}
	var log bytes.Buffer
	for _, h := range []slog.Handler{
		slog.NewTextHandler(&log, nil),
		slog.NewJSONHandler(&log, nil),
	} {
		slog.New(h).Info("loaded", "v", v)
	}
	asJSON, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	asXML, _ := xml.Marshal(v) // not everything can be
	return append(out, log.String(), string(asJSON), string(asYAML), string(asXML), fmt.Sprint(v),
		fmt.Sprintln([]any{v}))
}

func leaks(text string) bool {
	return strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) ||
		strings.Contains(text, fmt.Sprintf("%X", secret))
}

func TestFileKeepsSecrets(t *testing.T) {
	f := load(t, "backend: redis://u:"+secret+"@h:6379/0?auth="+secret+"#"+secret+
		"\nnamespace: shop\nwait: {mode: poll}\nrequire: [watch]\n"+
		"tracing: {endpoint: 'https://u:"+secret+"@h/p?key="+secret+"'}\n")
	type hidden struct{ f File } // fmt cannot call methods of unexported fields
	type shown struct{ F File }
	for _, v := range []any{
		f, &f,
		[]File{f},
		map[string]File{"f": f},
		hidden{f},
		&hidden{f},
		shown{f},
		&shown{f}, f.Backend, &f.Backend, f.Tracing,
		[]URL{f.Backend},
		struct{ u *URL }{&f.Backend},
		struct{ u []URL }{[]URL{f.Backend}},
		f.Locker,
	} {
		for _, text := range printings(t, v) {
			if leaks(text) {
				t.Errorf("%T prints as %s", v, text)
			}
		}
	}
	if !strings.Contains(f.Backend.Reveal(), secret) ||
		!strings.Contains(f.Tracing.Endpoint.Reveal(), secret) {
		t.Error("Reveal does not")
	}
}

func TestPrint(t *testing.T) {
	f := load(t, fullYAML)
	const text = "backend=redis://h1:6379,h2:6379/0 ttl=20s max_hold=1h0m0s release_timeout=1.5s " +
		"store_timeout=10s namespace=shop " +
		"service=checkout classes=order-*,invoice/* break_deadlocks=true wait.mode=notify " +
		"wait.fallback=2s wait.initial=10ms wait.max=1s wait.passes=16 wait.pass_time=20ms " +
		"wait.fail_fast=true require=fencing,watch tracing.endpoint=grpc://collector:4317"
	for format, want := range map[string]string{
		"%v": text, "%+v": text, "%s": text, "%q": `"` + text + `"`,
	} {
		if got := fmt.Sprintf(format, f); got != want {
			t.Errorf("%s: got %s\nwant %s", format, got, want)
		}
	}
	if got, want := fmt.Sprintf("%v %#v", f.Backend, f.Backend),
		`redis://h1:6379,h2:6379/0 config.URL("redis://h1:6379,h2:6379/0")`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var zero File
	if zero.String() != "" || fmt.Sprint(zero.Backend) != "" {
		t.Errorf("the zero File prints as %q and %q", zero.String(), zero.Backend)
	}
}

// TestErrorsKeepSecrets has a secret in every place where a value is refused, in the file and by
// variables.
func TestErrorsKeepSecrets(t *testing.T) {
	t.Setenv("SECRET", secret)
	var values []string
	for _, value := range []string{
		"redis://u:" + secret + "@h", secret, secret + "://h",
		"redis://u:" + secret, "30s" + secret, "-" + secret,
	} {
		values = append(values, value, strings.ReplaceAll(value, secret, "${SECRET}"))
	}
	values = append(values, "redis://u:"+secret+"/x@h", "redis://h\x7f:"+secret,
		"redis://u:%zz"+secret+"@h", "&"+secret, "*"+secret, "@"+secret, "!"+secret+" x",
		"${"+"SECRET}${", "'"+secret, "\""+secret, "\"\\q"+secret, "{"+secret, "["+secret,
		"? "+secret, secret+": "+secret+": x", "http://u:"+secret+"@h:x", "http://u:"+secret+"@",
		"| "+secret)
	for _, fd := range fields {
		for _, value := range values {
			keys := strings.Split(fd.key, ".")
			text := strings.Join(keys, ":\n  ") + ": " + value + "\n"
			if _, err := Load(write(t, text)); err != nil {
				keepsSecrets(t, text, err)
			}
			t.Setenv(fd.env(), strings.ReplaceAll(value, "${SECRET}", secret))
			if _, err := FromEnv(); err != nil {
				keepsSecrets(t, fd.env()+"="+value, err)
			}
			// Set again before the next Load of a file, or an error that is of no matter here.
			t.Setenv(fd.env(), "mem://")
		}
		t.Setenv(fd.env(), map[bool]string{true: "mem://", false: ""}[fd.must()])
	}
	for _, text := range []string{
		"backend:redis://u:" + secret + "@h",
		"{backend:redis://u:" + secret + "@h}", "redis://u:" + secret + "@h: x",
	} {
		_, err := Load(write(t, text))
		if err == nil {
			t.Fatalf("%q was loaded", text)
		}
		keepsSecrets(t, text, err)
	}
	if _, err := ParseURL("redis://u:" + secret); err != nil {
		keepsSecrets(t, "ParseURL", err)
	}
	if _, err := ParseURL(secret); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("ParseURL: %v", err)
	} else {
		keepsSecrets(t, "ParseURL", err)
	}
}

// keepsSecrets looks at err and all that it wraps.
func keepsSecrets(t testing.TB, input string, err error) {
	t.Helper()
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
		if leaks(text) {
			t.Errorf("%q: the error tells the secret: %s", input, text)
		}
	}
	switch err := err.(type) { //nolint:errorlint // it unwraps by itself
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			keepsSecrets(t, input, inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range err.Unwrap() {
			keepsSecrets(t, input, inner)
		}
	}
}
