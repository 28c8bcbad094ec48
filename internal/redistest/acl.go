package redistest

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// documented is a line of the table of permissions in a backend's doc.go: where, or nothing in a
// line that goes on, and commands.
var documented = regexp.MustCompile(`(?m)^//\t(?:[a-z].*?  )? *([A-Z][A-Z ]+)$`)

// Permissions returns the commands that doc.go in the working directory says a user needs.
func Permissions(t testing.TB) (commands []string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "# Permissions")
	for _, line := range documented.FindAllStringSubmatch(section, -1) {
		commands = append(commands, strings.Fields(line[1])...)
	}
	all := " " + strings.Join(commands, " ") + " "
	for _, known := range []string{redis.CommandsOnKeys, redis.CommandsOnChannels, "INFO"} {
		if !strings.Contains(all, " "+known+" ") {
			t.Fatalf("doc.go lists %v, and not %s", commands, known)
		}
	}
	return commands
}

// AllChannels is the rule that lets a user use every channel; before Redis 6.2 everybody may.
func AllChannels(srv *testserver.Server) []string {
	if !srv.Version().AtLeast(6, 2) {
		return nil
	}
	return []string{"allchannels"}
}

// SetUser makes a user of srv that may do this and no more, on the keys and channels of the
// default prefix, and returns the URL of srv for it.
func SetUser(t testing.TB, srv *testserver.Server, scheme string, commands ...string) string {
	t.Helper()
	srv.MustDo(append([]string{"ACL", "SETUSER"}, user(srv, commands)...)...)
	return scheme + "://app:pw@" + srv.Addr()
}

// ForbiddenKeys has a user who may touch some keys only open the default prefix, another one, and
// the string dialect, whose locks have a key beside that begins with a brace. The error names the
// keys that were asked for, and the parameter that changes them, when the backend is opened, and
// later if it is of another key.
//
// covers: R20
func ForbiddenKeys(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	for name, test := range map[string]struct {
		keys  []string // patterns
		query string
		names string // in the error, when it is opened
		key   string // which is asked for later
		later string // names in the error of that
	}{
		"default prefix": {[]string{"~app:*"}, "", `"holdfast:probe"`, "", ""},
		"its own":        {[]string{"~app:*"}, "?prefix=app:", "", "k", ""},
		"dialect":        {[]string{"~app:*"}, "?dialect=string", `"probe:holdfast"`, "", ""},
		"its own dialect": {
			[]string{"~app:*"},
			"?dialect=string&prefix=app:",
			`"{app:probe:holdfast}:holdfast"`, "", "",
		},
		"with both keys": {
			[]string{"~app:*", "~{app:*"},
			"?dialect=string&prefix=app:", "", "k",
			"",
		},
		"another's key": {
			[]string{"~app:{a*", "~app:probe", "~app:mark"},
			"?prefix=app:", "", "b",
			`"app:{b}"`,
		},
	} {
		rules := slices.Concat([]string{
			"ACL", "SETUSER", "some", "reset", "on", ">a password",
			"+@all",
		}, AllChannels(srv), test.keys)
		srv.MustDo(rules...)
		b, err := backend.Open(t.Context(), scheme+"://some:a%20password@"+srv.Addr()+test.query)
		names := test.names
		if err == nil {
			_, err = b.TryAcquire(t.Context(), storetest.Claim(test.key))
			names = test.later
			storetest.Want(t, "close", b.Close(), nil)
		}
		switch {
		case names == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case names != "" && (!errors.Is(err, backend.ErrDenied) ||
			!strings.Contains(err.Error(), names) || !strings.Contains(err.Error(), "prefix=")):
			t.Errorf("%s: %v, want one that names %s and prefix", name, err, names)
		}
	}
}

// user is the name of that user, and its rules.
func user(srv *testserver.Server, commands []string) []string {
	words := []string{"app", "reset", "on", ">pw", "~holdfast:*"}
	if srv.Version().AtLeast(6, 2) { // before, there are no rules for channels
		words = append(words, "resetchannels", "&holdfast:*")
	}
	for _, command := range commands {
		if command != "CLIENT" {
			words = append(words, "+"+strings.ToLower(command))
			continue
		}
		words = append(words, "+client|tracking", "+client|caching")
		if !srv.Version().AtLeast(6, 2) { // later, RESP3 is everybody's
			words = append(words, "+hello")
		}
	}
	return words
}

// LeastPrivileges is a Harness whose clients may do what doc.go in the working directory says, and
// no more.
func LeastPrivileges(t testing.TB, srv *testserver.Server, scheme string) backendtest.Harness {
	// For List and Observe, which opening does not try.
	h, commands := Harness(t, srv, scheme), append(Permissions(t), "SCAN", "CLIENT")
	url := SetUser(t, srv, scheme, commands...)
	h.Open = func(t testing.TB) backend.Backend { return Dial(t, url) }
	// A server that does not know the user would refuse it for good.
	srv.Add(append([]string{"--user"}, user(srv, commands)...)...)
	return h
}

// EachPermission takes each of the commands that doc.go lists from the user. Then a client is not
// opened, and the error says which command is denied, and not who the user is; without one for the
// channels it is opened, and whoever waits polls.
//
// covers: R20
func EachPermission(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	commands := Permissions(t)
	storetest.Want(t, "close", Dial(t, SetUser(t, srv, scheme, commands...)).Close(), nil)
	for i, missing := range commands {
		others := append(append([]string{}, commands[:i]...), commands[i+1:]...)
		url := SetUser(t, srv, scheme, others...)
		srv.MustDo("SCRIPT", "FLUSH") // so that EVAL is needed
		b, err := backend.Open(t.Context(), url)
		switch {
		case slices.Contains(strings.Fields(redis.CommandsOnChannels), missing):
			storetest.Want(t, "open without "+missing, err, nil)
			c := storetest.Claim(storetest.Key(t))
			c.Queue, c.WaiterTTL = true, c.TTL
			if _, err := b.Watch(t.Context(), c); missing != "UNSUBSCRIBE" &&
				!errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("watch without %s: %v", missing, err)
			}
		case !errors.Is(err, backend.ErrDenied):
			t.Errorf("open without %s: %v, want ErrDenied", missing, err)
		case !strings.Contains(strings.ToUpper(err.Error()), missing), strings.Contains(err.Error(),
			"app"):
			t.Errorf("open without %s: %v, want the command and not the user", missing, err)
		}
		if err == nil {
			storetest.Want(t, "close", b.Close(), nil)
		}
	}
}
