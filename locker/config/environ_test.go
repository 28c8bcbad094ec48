package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

var fullEnv = map[string]string{
	"HOLDFAST_BACKEND": "redis://u:p@h1:6379,h2:6379/0?x=y", "HOLDFAST_TTL": "20s",
	"HOLDFAST_MAX_HOLD":        "1h",
	"HOLDFAST_RELEASE_TIMEOUT": "1500ms", "HOLDFAST_STORE_TIMEOUT": "10s",
	"HOLDFAST_NAMESPACE": "shop",
	"HOLDFAST_SERVICE":   "checkout", "HOLDFAST_WAIT_MODE": "notify",
	"HOLDFAST_WAIT_FALLBACK": "2s",
	"HOLDFAST_WAIT_INITIAL":  "10ms", "HOLDFAST_WAIT_MAX": "1s",
	"HOLDFAST_WAIT_PASSES": "16", "HOLDFAST_WAIT_PASS_TIME": "20ms",
	"HOLDFAST_WAIT_FAIL_FAST":   "true",
	"HOLDFAST_CLASSES":          "order-*, invoice/*",
	"HOLDFAST_BREAK_DEADLOCKS":  "true",
	"HOLDFAST_REQUIRE":          "fencing, watch",
	"HOLDFAST_TRACING_ENDPOINT": "grpc://collector:4317",
}

// TestEnvironment sets every key by its variable, without a file and over one that says otherwise.
func TestEnvironment(t *testing.T) {
	for _, fd := range fields {
		if fullEnv[fd.env()] == "" {
			t.Errorf("%s is not tested", fd.env())
		}
	}
	for name, value := range fullEnv {
		t.Setenv(name, value)
	}
	got, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, fullFile(t, ""))

	path := write(t, "backend: etcd://h\nttl: 1s\nmax_hold: 1s\nrelease_timeout: "+
		"1s\nstore_timeout: 1s\nnamespace: x\nservice: x\n"+
		"wait: {mode: poll, fallback: 3s, initial: 3s, max: 3s, passes: 3, pass_time: 3s, "+
		"fail_fast: false}\nrequire: [state]\nclasses: [x]\nbreak_deadlocks: false\ntracing: "+
		"{endpoint: http://h}\n")
	if got, err = Load(path); err != nil {
		t.Fatal(err)
	}
	same(t, got, fullFile(t, path))
}

func TestOverride(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		t.Setenv("HOLDFAST_TTL", "5s")
		if got := load(t, fullYAML); got.Locker.TTL != 5*time.Second ||
			got.Locker.Namespace != "shop" {
			t.Errorf("got %v", got)
		}
	})
	t.Run("back to the default", func(t *testing.T) {
		t.Setenv("HOLDFAST_WAIT_MODE", "auto")
		t.Setenv("HOLDFAST_MAX_HOLD", "0s")
		if got := load(t, fullYAML); got.Locker.Wait.Mode != waiting.Auto ||
			got.Locker.MaxHold != 0 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("empty is not set", func(t *testing.T) {
		for name := range fullEnv {
			if name != "HOLDFAST_BACKEND" {
				t.Setenv(name, "")
			}
		}
		got := load(t, fullYAML)
		same(t, got, fullFile(t, got.Path))
	})
	t.Run("what the file has is not looked at", func(t *testing.T) {
		t.Setenv("HOLDFAST_BACKEND", "mem://")
		if got := load(t, "backend: ${NOT_SET_HERE}\n"); got.Backend.Reveal() != "mem://" {
			t.Errorf("got %v", got)
		}
	})
	t.Run("but it must be there once", func(t *testing.T) {
		t.Setenv("HOLDFAST_TTL", "5s")
		_, texts := problems(t, write(t, "ttl: 1s\nttl: 2s\n"))
		want := []string{"config: holdfast.yaml:2: ttl: is there already, at line 1"}
		if !slices.Equal(texts, want) {
			t.Errorf("got %q, want %q", texts, want)
		}
	})
	t.Run("not expanded", func(t *testing.T) {
		t.Setenv("HOLDFAST_BACKEND", "redis://u:a$$b@h")
		t.Setenv("HOLDFAST_NAMESPACE", "${x")
		if got := load(t, "{}"); got.Backend.Reveal() != "redis://u:a$$b@h" ||
			got.Locker.Namespace != "${x" {
			t.Errorf("got %v", got)
		}
	})
}

func TestBadEnvironment(t *testing.T) {
	for _, tt := range []struct{ name, value, file, want string }{
		{"HOLDFAST_BACKEND", "", "", "config: backend (from HOLDFAST_BACKEND): is empty"},
		{
			"HOLDFAST_BACKEND", "", "backend: redis://h",
			"config: backend (from HOLDFAST_BACKEND): is empty",
		},
		{
			"HOLDFAST_BACKEND", "redis://h\n", "",
			"config: backend (from HOLDFAST_BACKEND): has white space around it; a line break at " +
				"the end of a secret is the usual one",
		},
		{"HOLDFAST_BACKEND", "redis://u:a\nb@h", "", "config: backend (from HOLDFAST_BACKEND): " +
			"has a line break in it, as a secret that is read from a file may; remove it, or " +
			"percent-encode it"},
		{
			"HOLDFAST_TTL", "30", "",
			"config: ttl (from HOLDFAST_TTL): is not a duration, such as 30s, 1m30s or 500ms",
		},
		{
			"HOLDFAST_TTL", "30h", "ttl: 1s",
			"config: ttl (from HOLDFAST_TTL): 30h0m0s is over 24h0m0s",
		},
		{
			"HOLDFAST_WAIT_MODE", "pol", "",
			"config: wait.mode (from HOLDFAST_WAIT_MODE): is none of auto, handoff, notify, " +
				"poll; did you mean poll?",
		},
		{
			"HOLDFAST_REQUIRE", "watch,fencng", "",
			"config: require (from HOLDFAST_REQUIRE): is none of shared, permit, weight, " +
				"fencing, queue, watch, reentrant, state, notbefore, inspect, observe, mintoken, " +
				"tookover, loss; did you mean fencing?",
		},
		{
			"HOLDFAST_CLASSES", "order-*,[a", "",
			"config: classes (from HOLDFAST_CLASSES): is no pattern as of path.Match",
		},
		{
			"HOLDFAST_CLASSES", "*", "",
			"config: classes (from HOLDFAST_CLASSES): has no text before its first wildcard, " +
				"which the class would be called by",
		},
		{
			"HOLDFAST_TRACING_ENDPOINT", "h:4318", "",
			"config: tracing.endpoint (from HOLDFAST_TRACING_ENDPOINT): has none of the schemes " +
				"http://, https://, grpc://, grpcs://",
		},
		{
			"HOLDFAST_WAIT_MAX", "1ms", "wait: {initial: 20ms}",
			"config: wait.max (from HOLDFAST_WAIT_MAX): 1ms is below wait.initial, which is 20ms",
		},
		{
			"HOLDFAST_WAIT_INITIAL", "2s", "wait: {max: 1s}",
			"config: holdfast.yaml:1: wait.max: 1s is below wait.initial, which is 2s",
		},
		{
			"HOLDFAST_BACKED", "redis://u:hunter2@h", "",
			"config: HOLDFAST_BACKED: unknown variable; did you mean HOLDFAST_BACKEND?",
		},
		{
			"HOLDFAST_WAITMODE", "poll", "ttl: 1s",
			"config: HOLDFAST_WAITMODE: unknown variable; did you mean HOLDFAST_WAIT_MODE?",
		},
		{
			"HOLDFAST_TTL", "x", "ttl: y\nservice: 1",
			"config: ttl (from HOLDFAST_TTL): is not a duration, such as 30s, 1m30s or 500ms\n" +
				"config: holdfast.yaml:2: service: must be a text, not a number; put it in " +
				"quotes if it is meant as text",
		},
	} {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			t.Setenv(tt.name, tt.value)
			path := ""
			if tt.file != "" {
				path = write(t, tt.file)
			}
			found, texts := problems(t, path)
			if got := strings.Join(texts, "\n"); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if e := found[0]; !errors.Is(e, backend.ErrInvalid) ||
				e.File == "" && !slices.Equal(e.Env, []string{tt.name}) {
				t.Errorf("got %#v, want it to name %s", e, tt.name)
			}
		})
	}
}

// TestForeignVariables: with our prefix, and none of our business.
func TestForeignVariables(t *testing.T) {
	for _, name := range []string{
		"HOLDFAST_SEED", "HOLDFAST_CONFIG", "HOLDFAST_", "HOLDFAST_STRESS", "HOLDFAST_WAIT",
		"HOLDFASTTTL", "HOLDFAST_TEST_REDIS",
		// What Kubernetes sets beside services named holdfast and holdfast-backend.
		"HOLDFAST_PORT", "HOLDFAST_SERVICE_HOST", "HOLDFAST_SERVICE_PORT",
		"HOLDFAST_SERVICE_PORT_HTTP", "HOLDFAST_PORT_6379_TCP",
		"HOLDFAST_PORT_6379_TCP_ADDR", "HOLDFAST_BACKEND_PORT", "HOLDFAST_BACKEND_SERVICE_HOST",
		"HOLDFAST_BACKEND_SERVICE_PORT",
	} {
		t.Setenv(name, "tcp://10.0.0.1:6379")
	}
	got, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, File{})
}
