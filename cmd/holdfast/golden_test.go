//go:build unix

package main_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

// varying is what differs from run to run. What is behind it in a table moves with it, so blanks
// are normalised too.
var varying = []struct{ what, with string }{
	{`127\.0\.0\.1:[0-9]+`, "HOST:PORT"},
	{`(pid |"pid":)[0-9]+`, "${1}PID"},
	{`(_s":)[0-9.e-]+`, "${1}SECONDS"},
	{`([0-9]+h)?([0-9]+m)?[0-9]+(\.[0-9]+)?(ms|µs|s)\b`, "TIME"},
	{`((last_)?token"?:? *)[0-9]{6,}`, "${1}TOKEN"},
	{`\b[0-9]{15,17}\b`, "TOKEN"},
	{
		`(Redis|Valkey) [0-9.]+, free locks are taken by (scripts|SET … IFEQ)`,
		"SERVER, free locks are taken SOMEHOW",
	},
	{
		`the server's (is within|differs) [^;]*; holders allow`,
		"the server's is within PART of this machine's; holders allow",
	},
	{
		`the kernel (makes it \S+% (fast|slow)er|leaves it alone)(; not synchronised[^"\n]*)?`,
		"the kernel does SOMETHING",
	},
	{` {2,}`, "  "},
	{`(?m) +$`, ""},
}

// normal is o without what differs from run to run.
func (o outcome) normal(t *testing.T) outcome {
	t.Helper()
	o.out, o.err = normal(t, o.out), normal(t, o.err)
	return o
}

func normal(t *testing.T, text string) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "@"+host, "@HOST"), `"host":"`+host+`"`,
		`"host":"HOST"`)
	for _, v := range varying {
		text = regexp.MustCompile(v.what).ReplaceAllString(text, v.with)
	}
	return text
}

// golden compares what was printed on both outputs, and the status, with a file of testdata.
func (o outcome) golden(t *testing.T, name string) outcome {
	t.Helper()
	if strings.Contains(o.out+o.err, secret) {
		t.Errorf("%s shows the password:\n%s%s", name, o.out, o.err)
	}
	got := o.out
	if o.err != "" {
		got += "-- standard error\n" + o.err
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return o
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; go test ./cmd/holdfast -update", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test ./cmd/holdfast -update writes it anew. It "+
			"was\n%s\nand is\n%s", name, want, got)
	}
	return o
}

func TestConfigCheck(t *testing.T) {
	env := []string{"HOLDFAST_NAMESPACE=shop", "PASSWORD=" + secret}
	for _, output := range []string{"text", "json"} {
		holdfastWith(t, env, "config", "check", "testdata/holdfast.yaml", "-o", output).want(t,
			0).golden(t, "config-check-"+output)
	}
	o := holdfast(t, "config", "check", "testdata/mistakes.yaml").want(t, 2).golden(t,
		"config-check-mistakes")
	if o.out != "" {
		t.Errorf("prints %s", o.out)
	}
	for args, says := range map[string]string{
		"--backend consul://h":      "scheme is not registered",
		"--backend redis://h?bla=1": "not a known query parameter",
		"--config a b":              "give one of them", "a b": "\"b\" is too much",
		"none.yaml": "no such file", "-o yaml": "neither text nor json",
	} {
		if o := holdfast(t, append([]string{"config", "check"}, strings.Fields(args)...)...).want(t,
			2); !strings.Contains(o.err, says) {
			t.Errorf("%s says %s", args, o.err)
		}
	}
	var schema map[string]any
	if err := json.Unmarshal([]byte(holdfast(t, "config", "schema").want(t, 0).out),
		&schema); err != nil || schema["properties"] == nil {
		t.Errorf("%v: %v", err, schema)
	}
}

// What operators look at, as text and as JSON, of a lock that is held and waited for, and of a free
// one.
func TestGolden(t *testing.T) {
	srv := testserver.Redis(t, persistent)
	held := begin(t, srv.URL(), "run", "report", "--ttl=1m", "--", "sh", "-c", works)
	held.line()
	waits := begin(t, srv.URL(), "run", "report", "--", "true")
	for o := (outcome{}); !strings.Contains(o.out, "waits"); {
		o = holdfast(t, "inspect", "report", "--backend", srv.URL())
	}
	for name, args := range map[string]string{
		"inspect": "inspect report", "inspect-free": "inspect free", "list": "list",
		"leader": "leader report", "doctor": "doctor",
		"not-acquired": "run report --no-wait -- true", "not-released": "release report --token 1",
	} {
		for _, output := range []string{"text", "json"} {
			args := append([]string{strings.Fields(args)[0], "--backend", srv.URL(), "-o", output},
				strings.Fields(args)[1:]...)
			holdfast(t, args...).normal(t).golden(t, name+"-"+output)
		}
	}
	// Before anything was seen.
	holdfast(t, "wait", "report", "--timeout=1ns", "--backend", srv.URL()).want(t, 75)
	_ = held.cmd.Process.Signal(syscall.SIGTERM)
	held.end()
	if status, _, errs := waits.end(); status != 0 {
		t.Errorf("the waiter: %d, %s", status, errs)
	}
}

// Weights are shown of those who hold and of those who wait, and decide who gets in.
func TestWeights(t *testing.T) {
	srv := testserver.SharedRedis(t)
	key := t.Name()
	permits := func(weight string, args ...string) []string {
		return append([]string{"run", key, "--permits=4", "--weight=" + weight}, args...)
	}
	held := begin(t, srv.URL(), permits("3", "--", "sh", "-c", works)...)
	held.line()
	holdfast(t, append(permits("2", "--no-wait", "--backend", srv.URL()), "--", "true")...).want(t,
		75)
	holdfast(t, append(permits("1", "--no-wait", "--backend", srv.URL()), "--", "true")...).want(t,
		0)
	waits := begin(t, srv.URL(), permits("2", "--", "true")...)
	var o outcome
	for !strings.Contains(o.out, "waits") {
		o = holdfast(t, "inspect", key, "--backend", srv.URL()).want(t, 0)
	}
	for _, want := range []string{
		`mode +permit\n +weight +3\n`,
		`1\. .* waits.*, permit of weight 2\n`,
	} {
		if !regexp.MustCompile(want).MatchString(o.out) {
			t.Errorf("inspect says %s, want %s", o.out, want)
		}
	}
	_ = held.cmd.Process.Signal(syscall.SIGTERM)
	held.end()
	if status, _, errs := waits.end(); status != 0 {
		t.Errorf("the waiter: %d, %s", status, errs)
	}
}

// A store that is dead, and one that knows the user not, in the words of each command.
func TestGoldenRefusals(t *testing.T) {
	dead, locked := testserver.Redis(t), testserver.Redis(t, testserver.WithPassword("right"))
	dead.Kill()
	var all outcome
	for _, args := range []string{
		"inspect k", "list", "top", "watch k", "wait k", "run k -- true",
		"leader k -- true", "acquire k --ttl=1m", "release k --token 5", "doctor", "bench",
		"demo",
	} {
		for _, url := range []string{
			dead.URL(), "rueidis://" + dead.Addr(),
			"redis://:" + secret + "@" + locked.Addr(),
			"rueidis://:" + secret + "@" + locked.Addr(),
		} {
			args := append([]string{strings.Fields(args)[0], "--backend", url},
				strings.Fields(args)[1:]...)
			o := holdfast(t, args...).normal(t)
			all.out += strconv.Itoa(o.status) + " " + o.out + o.err
		}
	}
	all.golden(t, "refusals")
}
