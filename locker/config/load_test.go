package config

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

const fullYAML = `
backend: redis://u:p@h1:6379,h2:6379/0?x=y
ttl: 20s
max_hold: 1h
release_timeout: 1500ms
store_timeout: 10s
namespace: shop
service: checkout
classes: [order-*, "invoice/*"]
break_deadlocks: true
wait:
  mode: notify
  fallback: 2s
  initial: 10ms
  max: 1s
  passes: 16
  pass_time: 20ms
  fail_fast: true
require: [fencing, Watch]
tracing:
  endpoint: grpc://collector:4317
`

// fullFile is what fullYAML says.
func fullFile(t *testing.T, path string) File {
	t.Helper()
	u, err := ParseURL("redis://u:p@h1:6379,h2:6379/0?x=y")
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := ParseURL("grpc://collector:4317")
	if err != nil {
		t.Fatal(err)
	}
	return File{
		Path: path, Backend: u, Tracing: Tracing{Endpoint: endpoint},
		Locker: locker.Config{
			TTL: 20 * time.Second, MaxHold: time.Hour, ReleaseTimeout: 1500 * time.Millisecond,
			StoreTimeout: 10 * time.Second,
			Namespace:    "shop", Service: "checkout", Classes: []string{"order-*", "invoice/*"},
			BreakDeadlocks: true,
			Wait: waiting.Config{
				Mode: waiting.Notify, Fallback: 2 * time.Second, Initial: 10 * time.Millisecond,
				Max:    time.Second,
				Passes: 16, PassTime: 20 * time.Millisecond, FailFast: true,
			},
			Require: backend.Capabilities{Fencing: true, Watch: true},
		},
	}
}

// same compares what was configured; where it came from may differ.
func same(t *testing.T, got, want File) {
	t.Helper()
	got.from, got.loaded, got.strange = nil, URL{}, nil
	want.from, want.loaded, want.strange = nil, URL{}, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestLoad(t *testing.T) {
	path := write(t, fullYAML)
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, fullFile(t, path))
}

// TestFullIsFull keeps fullYAML, and so the tests that use it, complete.
func TestFullIsFull(t *testing.T) {
	f := fullFile(t, "")
	for _, fd := range fields {
		if fd.get(&f) == "" {
			t.Errorf("%s is not in fullYAML", fd.key)
		}
	}
	for f, v := range reflect.ValueOf(f.Locker).Fields() {
		if v.IsZero() && f.Name != "Observer" && f.Name != "Logger" {
			t.Errorf("locker.Config.%s has no key", f.Name)
		}
	}
}

func TestLoadJSON(t *testing.T) {
	got := load(t, "{\n\t\"backend\": \"redis:\\/\\/u:a%5Cb@h\\/0\",\n\t\"wait\": {\"mode\": "+
		"\"poll\"},\n\t\"require\": [\"watch\"], \"service\": \"a\\\\/b\"\n}")
	if got.Backend.Reveal() != "redis://u:a%5Cb@h/0" || got.Locker.Wait.Mode != waiting.Poll ||
		!got.Locker.Require.Watch || got.Locker.Service != `a\/b` {
		t.Errorf("got %v, service %q", got, got.Locker.Service)
	}
}

// TestDefaults: what is not there, or empty, is zero, and so the default of package locker.
func TestDefaults(t *testing.T) {
	t.Setenv("EMPTY", "")
	for _, text := range []string{
		"{}", "wait:\ntracing: {}\n", "ttl:\nnamespace: ''\nrequire:\n", "require: []",
		"ttl: ${EMPTY}", "ttl: ${NOT_SET_HERE:-}",
		"wait: {mode: auto}", "max_hold: 0s", "max_hold: 0", "\xef\xbb\xbfttl:\n", "--- {}\n...\n",
	} {
		got := load(t, text)
		same(t, got, File{Path: got.Path})
	}
	got, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, File{})
}

func TestExpand(t *testing.T) {
	t.Setenv("NAME", "shop")
	t.Setenv("EMPTY", "")
	t.Setenv("YAML", "x\nttl: 1ms # ${NAME} *a \"")
	for text, want := range map[string]string{
		"namespace: ${NAME}":                   "shop",
		"namespace: '${NAME}-${NAME}'":         "shop-shop",
		"namespace: ${NOT_SET_HERE:-fallback}": "fallback",
		"namespace: ${NAME:-fallback}":         "shop",
		"namespace: ${EMPTY:-fallback}":        "fallback",
		"namespace: ${EMPTY}x":                 "x",
		"namespace: ${NOT_SET_HERE:-a:-b}":     "a:-b",
		"namespace: a$b$":                      "a$b$",
		"namespace: a$$b":                      "a$b",
		"namespace: $${NAME}":                  "${NAME}",
		"namespace: $$${NAME}":                 "$shop",
		"namespace: ${YAML}":                   "x\nttl: 1ms # ${NAME} *a \"",
		"{\"namespace\": \"${NAME}\"}":         "shop",
		"namespace: |-\n  ${NAME}":             "shop",
		"# ${NOT_SET_HERE}\nnamespace: x":      "x",
	} {
		got := load(t, text)
		same(t, got, File{Path: got.Path, Locker: locker.Config{Namespace: want}})
	}
	got := load(t, "ttl: ${NOT_SET_HERE:-10}s\nrequire: ['${NOT_SET_HERE:-watch}']\nwait: {mode: "+
		"'${NOT_SET_HERE:-poll}'}")
	if got.Locker.TTL != 10*time.Second || !got.Locker.Require.Watch ||
		got.Locker.Wait.Mode != waiting.Poll {
		t.Errorf("got %v", got)
	}
}

// TestPipe reads what has no size, such as a file made by a shell's <( ).
func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("service: x\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	f, err := Load("/dev/fd/" + strconv.Itoa(int(r.Fd())))
	if err != nil || f.Locker.Service != "x" {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"ttl", "max_hold", "service", "wait.mode"}
	for name, want := range map[string]string{
		"tll": "ttl", "TTL": "ttl", "tt": "ttl", "url": "", "x": "", "": "", "maxhold": "max_hold",
		"max-hodl": "max_hold",
		"services": "service", "serv": "", "waitmode": "wait.mode", strings.Repeat("ttl", 1000): "",
	} {
		if got := nearest(name, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", name, got, want)
		}
	}
}
