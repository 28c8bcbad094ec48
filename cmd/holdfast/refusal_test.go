package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

const secret = "s3cr3t"

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		args string
		says string
	}{
		{"demo --processes=2 --backend=mem://shop", "such as --backend redis://"},
		{"demo --processes=65", "--processes 65 is not between 1 and 64"},
		{"demo --stock=0", "--stock 0 is not between 1"},
		{"demo --workers=-1", "--workers -1 is not between 1 and 1000"},
		{"demo --think=-1s", "--think -1s is negative"},
		{"demo --rest=-1s", "--rest -1s is negative"},
		{"demo --ttl=-1s", "--ttl -1s is not positive"},
		{"demo --ttl=0s", "--ttl 0s is not positive"},
		{"demo --ttl=25h", "is over 24h"},
		{"demo -o yaml", "--output \"yaml\" is neither text nor json"},
		{"demo --web -o json", "not together with -o json"},
		{"demo --duration=0s", "--duration 0s is not positive"},
		{"demo --key=", "invalid key: is empty"},
		{"demo --kill", "--kill needs --processes 2"},
		{"demo --kill --processes=2 --no-lock", "not together with --no-lock"},
		{"demo --kill --processes=2 --ttl=8s --backend=mem://", "memory of one process"},
		{"demo --speed=1", "unknown flag: --speed"},
		{"demo now", "\"now\" is too much: it is holdfast demo [flags]"},
		{"dmeo", "holdfast: unknown command \"dmeo\"; did you mean demo?\n"},
		{"strange", "holdfast --help lists them"},
		{"config chekc", "did you mean check?"},
		{"version 2", "\"2\" is too much: it is holdfast version [flags]"},
		{"list a b", "\"b\" is too much: it is holdfast list [PREFIX] [flags]"},
		{"config schema x", "\"x\" is too much"},
		{"generations x", "\"x\" is too much"},
		{"inspect", "an argument is missing: it is holdfast inspect KEY [flags]"},
		{"help ran", "unknown command \"ran\"; did you mean run?\n"},
		{"help run x", "unknown command \"x\""},
		{"help config chekc", "did you mean check?"},
		{"completion bogus", "unknown command \"bogus\"; holdfast completion --help lists them\n"},
		{"doctor redlock://", "names no nodes"},
		{"demo --backend=" + secret, "is not a URL"},
		{"demo --backend=redis://u:" + secret + "/@h", "percent-encode special characters"},
		{"demo --backend=consul://u:" + secret + "@h", "scheme is not registered"},
		{"demo --backend=redis://u:" + secret + "@h?colour=" + secret, "colour"},
		{"demo --config=", "--config is empty"},
		{"run --backend= k true", "--backend is empty"},
		{"run k --config= true", "--config is empty"},
		{"list --backend=", "--backend is empty"},
		{"run --ttl=25h --backend=file:///dev/null/x k true", "--ttl: invalid ttl"},
		{"leader", "wants a KEY, as in"},
		{"demo --backend=", "--backend is empty"},
		{"demo --trace=", "--trace is empty"},
		{"demo --trace=localhost:4318", "begins with none of http://"},
		{"demo --trace=http://:4318", "names no host"},
		{"demo --trace=http://u:" + secret + "@h:4318", "OTEL_EXPORTER_OTLP_HEADERS"},
		{"demo --trace=http://h/?key=" + secret, "nothing after its path"},
		{"demo --trace=http://%" + secret, "not a URL"},
		{"demo --trace=grpc://h:4317/v1/traces", "gRPC has no path"},
		{"demo --trace=http://h --no-lock", "not together with --no-lock"},
		{"demo --config=..", "is a directory"},
		{"demo --config=none.yaml", "none.yaml: no such file"},
		{"demo-worker", "not for people"},
	} {
		t.Run(c.args, func(t *testing.T) {
			o := holdfast(t, strings.Fields(c.args)...).want(t, 2)
			if !strings.Contains(o.err, c.says) || strings.Contains(o.err, secret) || o.out != "" {
				t.Errorf("says\n%s%s", o.err, o.out)
			}
			if lines := strings.Count(o.err, "\n"); lines > 4 {
				t.Errorf("%d lines:\n%s", lines, o.err)
			}
		})
	}
}

// A store that cannot be used is one line on standard error, without the password.
func TestUnusableStore(t *testing.T) {
	srv := testserver.Redis(t, testserver.WithPassword("right"))
	silent := testserver.Redis(t)
	silent.Kill()
	for url, says := range map[string]string{
		"redis://:" + secret + "@" + srv.Addr():    "WRONGPASS",
		"redis://:" + secret + "@" + silent.Addr(): "connection refused",
	} {
		o := holdfast(t, "demo", "--backend", url).want(t, 1)
		if !strings.Contains(o.err, says) || strings.Contains(o.err, secret) ||
			strings.Count(o.err, "\n") != 1 || o.out != "" {
			t.Errorf("%s%s", o.out, o.err)
		}
	}
}

func TestConfiguration(t *testing.T) {
	srv := testserver.SharedRedis(t)
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "holdfast.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	small := []string{"demo", "--json", "--stock=5", "--workers=2"}
	good := file("backend: " + srv.URL() + "\nttl: 3s\nnamespace: " + t.Name() + "\n")

	r := holdfast(t, append(small, "--config", good)...).want(t,
		0).result(t).wantSafe(t).wantSoldOut(t)
	if r.Backend != srv.URL() || r.TTL != 3000 {
		t.Errorf("file: %+v", r)
	}
	r = holdfast(t, append(small, "--config", good, "--backend=mem://", "--ttl=4s")...).want(t,
		0).result(t)
	if r.Backend != "mem://" || r.TTL != 4000 {
		t.Errorf("flags over file: %+v", r)
	}
	env := []string{
		"HOLDFAST_BACKEND=" + srv.URL(), "HOLDFAST_TTL=5s",
		"HOLDFAST_NAMESPACE=" + t.Name(),
	}
	r = holdfastWith(t, env, small...).want(t, 0).result(t)
	if r.Backend != srv.URL() || r.TTL != 5000 {
		t.Errorf("environment: %+v", r)
	}
	r = holdfastWith(t, env, append(small, "--backend=mem://")...).want(t, 0).result(t)
	if r.Backend != "mem://" || r.TTL != 5000 {
		t.Errorf("flag over environment: %+v", r)
	}
	o := holdfast(t, "demo", "--config",
		file("backend: mem://\nttll: 3s\nwait: {mode: sometimes}\n")).want(t, 2)
	for _, says := range []string{":2: ttll: unknown key", ":3: wait.mode: is none of"} {
		if !strings.Contains(o.err, says) {
			t.Errorf("no %q in\n%s", says, o.err)
		}
	}
}
