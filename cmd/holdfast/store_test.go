package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// What is of use between processes only does not lock in its own memory, wherever that comes from.
func TestMemoryLocksNothingBetweenProcesses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(file, []byte("ttl: 5s\nbackend: ${NOT_SET_HERE:-mem://jobs}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	// One node in memory is enough: it grants to each process, so two have a majority with a node
	// more each.
	quorum := redlockURL(testserver.SharedRedis(t).URL(), "redlock://?node=mem%3A%2F%2Fa",
		"redis://127.0.0.1:1")
	for _, c := range []struct{ from, env, flags string }{
		{"--backend", "", "--backend=mem://"},
		{"--backend", "", "--backend=" + quorum},
		{"HOLDFAST_BACKEND", "HOLDFAST_BACKEND=mem://", ""},
		{file + ":2 (NOT_SET_HERE is not set)", "", "--config=" + file},
	} {
		for _, args := range []string{
			"run k -- echo ran", "leader k -- echo ran", "leader k",
			"wait k", "inspect k", "list k", "watch k", "top --rows=1", "release k --force",
		} {
			words := strings.Fields(args)
			words = append(words[:2:2], append(strings.Fields(c.flags), words[2:]...)...)
			o := holdfastWith(t, []string{c.env}, words...).want(t, 2)
			says := "mem:// (from " + c.from +
				") locks nothing between processes: name another store, such as file:///"
			if !strings.Contains(o.err, says) || strings.Count(o.err, "\n") != 1 || o.out != "" {
				t.Errorf("%v prints %s%s\nwant %s", words, o.out, o.err, says)
			}
		}
	}
}

// A flag that a store cannot honour is named with the store, and with what to do.
func TestFlagsThatAStoreCannotHonour(t *testing.T) {
	t.Parallel()
	quorum := redlockURL(testserver.Redis(t).URL(), testserver.Redis(t).URL(),
		testserver.Redis(t).URL())
	dialect := testserver.SharedRedis(t).URL() + "?dialect=string"
	for _, c := range []struct{ url, flags, flag, why string }{
		{
			quorum, "--shared", "--shared is not to be had on redlock://",
			"redlock: Shared is not supported",
		},
		{
			quorum, "--permits=2", "--permits is not to be had on redlock://",
			"redlock: Permit is not supported",
		},
		{
			quorum, "--once-per=1h", "--once-per is not to be had on redlock://",
			"redlock: NotBefore is not supported",
		},
		{
			dialect, "--shared", "--shared is not to be had on redis://127.0.0.1:",
			"redis?dialect=string: Shared is not supported",
		},
	} {
		o := holdfast(t, "run", "k", "--backend", c.url, c.flags, "--", "echo", "ran").want(t, 2)
		for _, says := range []string{c.flag, c.why, "leave it out, or name a store that has it"} {
			if !strings.Contains(o.err, says) {
				t.Errorf("%s says %s, want %s", c.flags, o.err, says)
			}
		}
		if o.out != "" || strings.Count(o.err, "\n") != 1 {
			t.Errorf("%s prints %s%s", c.flags, o.out, o.err)
		}
		holdfast(t, "run", "k", "--backend", c.url, "--", "true").want(t, 0)
	}
}

// Whoever did not write the URL is told what is wrong in it, what there is, and where it comes
// from.
func TestUnknownParameterOfTheStore(t *testing.T) {
	t.Parallel()
	const url = "redis://u:" + secret + "@127.0.0.1:1?pool=" + secret
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(file, []byte("ttl: 5s\nbackend: "+url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const why = `open redis://127.0.0.1:1: invalid url "pool": is not a known query parameter ` +
		`(known: allow_eviction, dialect, max_ttl, pool_size, `
	for from, c := range map[string]struct{ env, args string }{
		"--backend: ": {"", "inspect k --backend=" + url}, " --backend: ": {
			"",
			"config check " + file + " --backend=" + url,
		},
		"   --backend: ": {"", "demo --backend=" + url},
		"URL: ":          {"", "doctor " + url},
		"config: backend (from HOLDFAST_BACKEND): ": {"HOLDFAST_BACKEND=" + url, "inspect k"},
		"config: " + file + ":2: backend: ":         {"", "config check " + file},
		" config: backend (from HOLDFAST_BACKEND): ": {
			"HOLDFAST_BACKEND=" + url,
			"run k --config=" + file + " -- true",
		},
		" config: " + file + ":2: backend: ": {"", "list --config=" + file},
		"  --backend: ": {
			"HOLDFAST_BACKEND=mem://",
			"list --config=" + file + " --backend=" + url,
		},
	} {
		o := holdfastWith(t, []string{c.env}, strings.Fields(c.args)...).want(t, 2)
		if says := ": " + strings.TrimLeft(from, " ") + why; !strings.Contains(o.err, says) ||
			strings.Contains(o.err, secret) {
			t.Errorf("%s says %s, want %s", c.args, o.err, says)
		}
	}
}

// A flag's value that cannot be read is told with what the flag takes.
func TestFlagsSayWhatTheyTake(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"demo --stock abc": `--stock takes a whole number, not "abc"`,
		"demo --stock 99999999999999999999": `--stock takes a whole number, not ` +
			`"99999999999999999999"`,
		"run k --ttl=soon -- true": `--ttl takes a duration, such as 500ms, 30s or ` +
			`1m30s, not "soon"`,
		"run k --permits=2.5 -- true": `--permits takes a whole number, not "2.5"`,
		"release k --token=-1":        `--token takes a whole number without a sign, not "-1"`,
		"list --held=perhaps":         `--held takes true or false, not "perhaps"`,
	} {
		if o := holdfast(t, strings.Fields(args)...).want(t, 2); !strings.Contains(o.err,
			": "+says+"\n") || o.out != "" {
			t.Errorf("%s says %s, want %s", args, o.err, says)
		}
	}
}
