package script

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

var update = flag.Bool("update", false, "write the golden files")

var scripts = map[string]Script{
	"acquire": own.Acquire, "tryacquireall": own.TryAcquireAll, "tryreleaseall": own.TryReleaseAll,
	"renew": own.Renew, "release": own.Release, "releaseall": own.ReleaseAll,
	"heartbeat": own.Heartbeat, "inspect": own.Inspect,
	"dialect": stringDialect, "probe": Probe, "mark": Mark, "saved": Saved,
	"fenced": Fenced("return redis.call('SET', KEYS[1], ARGV[1])"),
}

// golden/ has the scripts as they run; go test -update writes them.
func TestGolden(t *testing.T) {
	for name, s := range scripts {
		path := filepath.Join("golden", name+".lua")
		if *update {
			if err := os.WriteFile(path, []byte(s.Source()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(golden) != s.Source() {
			t.Errorf("%s is not what runs: go test ./internal/redis/script -update writes it", path)
		}
	}
	all, err := filepath.Glob("golden/*")
	if err != nil || len(all) != len(scripts) {
		t.Errorf("golden has %q, %v, but there are %d scripts", all, err, len(scripts))
	}
}

// The words of a script: comments and strings are skipped, and so is what follows a dot.
var (
	skipped = regexp.MustCompile(`--[^\n]*|'[^']*'|\.\s*[a-z_]\w*|\d\w*`)
	word    = regexp.MustCompile(`[A-Za-z_]\w*`)
	command = regexp.MustCompile(`'([A-Z]{3,})'`)
)

// A library uses no name but those it defines, those of Lua, and those that whatever is before it
// in the script defines; and a verb names no library of which it uses nothing.
func TestLibraries(t *testing.T) {
	const lua = "and break do else elseif end false for function if in local nil not or repeat " +
		"return then true until while " +
		"KEYS ARGV redis string table math error pcall ipairs next pairs tonumber type unpack _"
	used := map[string]bool{}
	for name, s := range scripts {
		defined := map[string]bool{}
		for _, w := range strings.Fields(lua) {
			defined[w] = true
		}
		for _, field := range regexp.MustCompile(`[{,]\s*(\w+) = `).FindAllStringSubmatch(
			s.Source(), -1) {
			defined[field[1]] = true
		}
		for _, line := range strings.Split(s.Source(), "\n") {
			if libraries, ok := strings.CutPrefix(line, "-- uses: "); ok {
				for _, library := range strings.Fields(libraries) {
					used[library+".lua"] = true
				}
			}
			code := skipped.ReplaceAllString(line, " ")
			for _, definition := range regexp.MustCompile(
				`(?:local|for|function)\s+[^=]*|function\s*\w*\([^)]*`).FindAllString(code, -1) {
				for _, w := range word.FindAllString(definition, -1) {
					defined[w] = true
				}
			}
			for _, w := range word.FindAllString(code, -1) {
				if !defined[w] {
					t.Errorf("%s uses %q, which nothing before it defines: %s", name, w, line)
				}
			}
			// The mark of a mutant apart.
			if line, _, _ := strings.Cut(line, " -- safeguard:"); len([]rune(line)) > 110 {
				t.Errorf("%s has a line of %d bytes: %s", name, len(line), line)
			}
		}
	}
	libraries, err := fs.Glob(files, "lib/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range libraries {
		if !used[library] {
			t.Errorf("no script uses %s", library)
		}
	}
}

// Each code is the same number in every script and here.
func TestCodes(t *testing.T) {
	codes := map[string]int{
		"OK": codeOK, "HELD": codeHeld, "LOST": codeLost, "FOREIGN": codeForeign,
		"EXPIRED":  codeExpired,
		"MISMATCH": codeMismatch, "QUARANTINE": codeClosed, "UNFIT": codeUnfit,
	}
	seen := 0
	for name, s := range scripts {
		for _, line := range regexp.MustCompile(
			`(?m)^local ([A-Z]+(?:, [A-Z]+)*) = ([\d, ]+)$`).FindAllStringSubmatch(s.Source(), -1) {
			numbers := strings.Split(line[2], ", ")
			for i, code := range strings.Split(line[1], ", ") {
				if _, ok := codes[code]; ok && fmt.Sprint(codes[code]) != numbers[i] {
					t.Errorf("%s: %s is %s, and %d in Go", name, code, numbers[i], codes[code])
				}
				seen++
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d codes were found", seen)
	}
}

// covers: R12
func TestCommands(t *testing.T) {
	found := map[string]bool{}
	for _, s := range scripts {
		for _, c := range command.FindAllStringSubmatch(s.Source(), -1) {
			found[c[1]] = true
		}
	}
	for _, option := range []string{"KEEPTTL", "WRONGTYPE"} {
		delete(found, option)
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, Commands) {
		t.Errorf("the scripts run %q, and Commands are %q", got, Commands)
	}
	for _, c := range Commands {
		if !strings.Contains(Probe.Source(), "'"+c+"'") {
			t.Errorf("the probe does not try %s", c)
		}
	}
}

func TestScripts(t *testing.T) {
	srv := testserver.SharedRedis(t)
	for name, s := range scripts {
		if got := srv.MustDo("SCRIPT", "LOAD", s.Source()); got != s.SHA1() {
			t.Errorf("%s: Redis calls it %s, we call it %s", name, got, s.SHA1())
		}
		code := regexp.MustCompile(`--.*`).ReplaceAllString(s.Source(), "")
		for _, forbidden := range []string{"tostring", "cjson", "SCAN", "KEYS *", "math.random"} {
			if strings.Contains(code, forbidden) {
				t.Errorf("%s uses %s", name, forbidden)
			}
		}
	}
}

// rig runs scripts on one key of a real server.
type rig struct {
	t   testing.TB
	srv *testserver.Server
	l   Layout
	key string // of the lock
}

func newRig(t testing.TB) rig {
	t.Helper()
	return rig{
		t: t, srv: testserver.SharedRedis(t), l: layout(t),
		key: "k" + strconv.Itoa(int(seq.Add(1))),
	}
}

func (r rig) eval(s Script, args ...string) any {
	r.t.Helper()
	reply, err := r.srv.Do(append([]string{"EVAL", s.Source(), "1", r.l.Key(r.key)}, args...)...)
	if err != nil {
		r.t.Fatalf("script: %v", err)
	}
	return reply
}

// send runs a request, whose claim need not say which key: it is that of the rig.
func (r rig) send(q Request) any {
	r.t.Helper()
	for i, k := range q.Keys {
		q.Keys[i] = strings.Replace(k, "{}", "{"+r.key+"}", 1)
	}
	reply, err := r.srv.Do(words(q)...)
	if err != nil {
		r.t.Fatalf("script: %v", err)
	}
	return reply
}

// words are the command that runs a request.
func words(q Request) []string {
	return slices.Concat([]string{"EVAL", q.Script.Source(), strconv.Itoa(len(q.Keys))}, q.Keys,
		q.Args)
}

func (r rig) acquire(owner string) (backend.Grant, error) {
	r.t.Helper()
	c := backend.Claim{Key: r.key, Owner: owner, TTL: minute}
	return DecodeAcquire(r.send(r.l.Acquire(c)), c)
}

// stored is what the key holds: its short form, or the fields of its long one in one order, since
// Redis' own may change when it moves fields about.
func (r rig) stored() string {
	r.t.Helper()
	if r.srv.MustDo("TYPE", r.l.Key(r.key)) == "string" {
		return r.srv.MustDo("GET", r.l.Key(r.key))
	}
	reply, err := r.srv.Do("HGETALL", r.l.Key(r.key))
	if err != nil {
		r.t.Fatal(err)
	}
	var pairs []string
	for pair := range slices.Chunk(reply.([]any), 2) {
		pairs = append(pairs, fmt.Sprint(pair...))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "\n")
}

// set stores a long form of fields, or a short one of a single string, which has an expiry as
// always.
func (r rig) set(fields ...string) {
	r.t.Helper()
	r.srv.MustDo("DEL", r.l.Key(r.key))
	if len(fields) == 1 {
		r.srv.MustDo("SET", r.l.Key(r.key), fields[0], "PX", "120000")
	} else if len(fields) > 0 {
		r.srv.MustDo(append([]string{"HSET", r.l.Key(r.key)}, fields...)...)
	}
}

// now is the server's clock in ms.
func (r rig) now() int64 {
	r.t.Helper()
	reply, err := r.srv.Do("TIME")
	if err != nil {
		r.t.Fatal(err)
	}
	n, err := strconv.ParseInt(fmt.Sprint(reply.([]any)[0])+"000", 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// covers: I2, K1, K2, K8
func TestTokens(t *testing.T) {
	r := newRig(t)
	us := r.now() * 1000
	for name, test := range map[string]struct{ f, least, most int64 }{
		"behind the clock":   {5, us, us + 1e9},
		"level with it":      {us, us + 1, us + 1e9},
		"ahead of the clock": {us + 1e12, us + 1e12 + 1, us + 1e12 + 1},
		"the last one":       {1<<53 - 3, 1<<53 - 2, 1<<53 - 2},
		"used up":            {1<<53 - 2, 0, 0},
		"beyond":             {1<<53 - 1, 0, 0},
	} {
		r.set("v", "h2", "f", strconv.FormatInt(test.f, 10))
		g, err := r.acquire("me")
		if token := int64(g.Token); token < test.least || token > test.most ||
			(err == nil) != (test.most > 0) {
			t.Errorf("%s: after %d came %d, %v", name, test.f, token, err)
		}
		if h := r.stored(); strings.Contains(strings.ReplaceAll(h, "me", ""), "e+") {
			t.Errorf("%s: stored in scientific notation: %s", name, h)
		}
		if left := r.left(); err == nil && left < 2*(int64(g.Token)-us)/1000-1e9/1000 {
			t.Errorf("%s: the counter is gone in %d ms, before the clock has caught up", name, left)
		}
	}
}

// A lease lasts for its TTL at least, counted from the µs of the grant, which the first token of a
// key is.
//
// covers: I1
func TestLeaseIsNotShort(t *testing.T) {
	for range 20 {
		r := newRig(t)
		g, err := r.acquire("me")
		if err != nil {
			t.Fatal(err)
		}
		x := r.left() - (minute / 2).Milliseconds() // the margin
		x += r.ms()                                 // which is later, so x is not too low
		if asked := int64(g.Token) + minute.Microseconds(); x*1000+999 < asked ||
			x*1000 > asked+minute.Microseconds() {
			t.Fatalf("a lease of a minute from %d µs ends at %d ms", g.Token, x)
		}
	}
}

// covers: I2, R23
func TestDamagedState(t *testing.T) {
	r := newRig(t)
	past, future := strconv.FormatInt(r.now()-1000, 10), strconv.FormatInt(r.now()+60_000, 10)
	for name, fields := range map[string][]string{
		"another version":       {"v", "h1", "f", "1"},
		"no version":            {"o", "x", "x", past, "f", "1"},
		"somebody's hash":       {"name", "Ada"},
		"no counter":            {"v", "h2", "o", "x", "x", past},
		"no expiry":             {"v", "h2", "o", "x", "f", "1"},
		"empty owner":           {"v", "h2", "o", "", "x", past, "f", "1"},
		"expiry nan":            {"v", "h2", "o", "x", "x", "nan", "f", "1"},
		"expiry -inf":           {"v", "h2", "o", "x", "x", "-inf", "f", "1"},
		"expiry in hex":         {"v", "h2", "o", "x", "x", "0x1", "f", "1"},
		"expiry with space":     {"v", "h2", "o", "x", "x", " 1", "f", "1"},
		"expiry negative":       {"v", "h2", "o", "x", "x", "-1", "f", "1"},
		"expiry fraction":       {"v", "h2", "o", "x", "x", "1.5", "f", "1"},
		"expiry empty":          {"v", "h2", "o", "x", "x", "", "f", "1"},
		"expiry too long":       {"v", "h2", "o", "x", "x", "00000000000000001", "f", "1"},
		"counter scientific":    {"v", "h2", "f", "1.7952e+15"},
		"counter nan":           {"v", "h2", "f", "nan"},
		"tombstone without end": {"v", "h2", "f", "1", "z", future + " me"},
		"tombstone cut":         {"v", "h2", "f", "1", "z", future[:5]},
		"tombstone junk":        {"v", "h2", "f", "1", "z", future + " a;x" + future + " me;"},
		"tombstone too long":    {"v", "h2", "f", "1", "z", "99999999999999999 me;"},
		"short: somebody's":     {"somebody's"},
		"short: empty":          {""},
		"short: other version":  {"h3 1234567890123456"},
		"short: no counter":     {"h2 "},
		"short: counter nan":    {"h2 nan"},
		"short: counter cut":    {"h2 123456789012345x"},
		"short: counter long":   {"h2 12345678901234567"},
		"short: count nan":      {"h2 1234567890123456 60000 me x "},
		"short: no margin":      {"h2 1234567890123456 x me 1 "},
		"short: margin long":    {"h2 1234567890123456 99999999999999999 me 1 "},
		"short: cut":            {"h2 1234567890123456 60000 me"},
		"short: blank at end":   {"h2 1234567890123456 "},
	} {
		r.set(fields...)
		before := r.stored()
		if _, err := r.acquire("me"); backend.AnswerOf(err) != backend.No ||
			!strings.Contains(err.Error(), backend.ErrForeign.Error()) {
			t.Errorf("%s: acquire: %v, want ErrForeign", name, err)
		}
		if s, err := r.inspect(); !errors.Is(err, backend.ErrForeign) {
			t.Errorf("%s: inspect: %+v, %v, want ErrForeign", name, s, err)
		}
		for _, reply := range []any{
			r.eval(own.Renew, "x", "60000", "60000"),
			r.eval(own.Release, "x", "60000", "60000"),
			r.eval(own.ReleaseAll, "60000", "x", "60000", "y", "0"),
		} {
			if reply, _ := reply.([]any); len(reply) == 0 || reply[0] != int64(codeForeign) {
				t.Errorf("%s: %v, want the code for foreign data", name, reply)
			}
		}
		if after := r.stored(); after != before {
			t.Errorf("%s: changed to %s", name, after)
		}
	}
}

// FuzzHashState: whatever the fields hold, a script never grants over a live holder, answers with a
// typed no instead, and a no leaves the data as it was.
func FuzzHashState(f *testing.F) {
	f.Add(uint8(0), "", "", "", "", "", int64(0))
	f.Add(uint8(0b1111), "h2", "other", "", "5", "", int64(50))
	f.Add(uint8(0b1111), "h2", "other", "", "5", "", int64(-50))
	f.Add(uint8(0b1111), "h2", "me", "", "5", "", int64(50))
	f.Add(uint8(0b0111), "h2", "other", "nan", "5", "", int64(0))
	f.Add(uint8(0b1111), "h2", "other", "1e99", "5", "1 me;", int64(0))
	f.Add(uint8(0b11111), "h2", "other", "", "5", "99999999999999 me;", int64(-1))
	f.Add(uint8(0b11011), "h2", "other", "", "5", "1 a;", int64(-1))
	f.Fuzz(func(t *testing.T, present uint8, v, o, x, token, z string, delta int64) {
		r := newRig(t)
		if x == "" && delta%1000 != 0 {
			x = strconv.FormatInt(r.now()+delta%1000*1000, 10)
		}
		var fields []string
		state := map[string]string{}
		for i, field := range [][2]string{{"v", v}, {"o", o}, {"x", x}, {"f", token}, {"z", z}} {
			if present&(1<<i) != 0 {
				fields = append(fields, field[0], field[1])
				state[field[0]] = field[1]
			}
		}
		r.set(fields...)
		before := r.stored()
		g, err := r.acquire("me")
		if err == nil {
			checkGrant(t, state, g, r.now())
		} else if backend.AnswerOf(err) != backend.No {
			t.Fatalf("%q: %v is no definite answer", state, err)
		} else if after := r.stored(); after != before {
			t.Fatalf("%q: %v, and changed to %s", state, err, after)
		}
		if err != nil && state["o"] != "stranger" {
			if reply := r.eval(own.Renew, "stranger", "60000", "0"); DecodeRenew(reply) == nil {
				t.Fatalf("%q: renewing, %v for one who does not hold", state, reply)
			}
			if reply := r.eval(own.Release, "stranger", "60000"); released(reply) == nil {
				t.Fatalf("%q: releasing, %v for one who does not hold", state, reply)
			}
			if after := r.stored(); after != before {
				t.Fatalf("%q: a stranger changed it to %s", state, after)
			}
		}
	})
}

var digits = regexp.MustCompile(`^[0-9]{1,16}$`)

// checkGrant holds a grant to the state before it: free, or held by the claimant, or held until a
// time that has passed.
func checkGrant(t *testing.T, state map[string]string, g backend.Grant, now int64) {
	t.Helper()
	owner, owned := state["o"]
	ends, err := strconv.ParseInt(state["x"], 10, 64)
	if owned && owner != "me" &&
		(err != nil || !digits.MatchString(state["x"]) || ends > now+1000) {
		t.Fatalf("%q: granted over a holder at %d", state, now)
	}
	if len(state) > 0 && state["v"] != "h2" {
		t.Fatalf("%q: granted over foreign data", state)
	}
	if f, err := strconv.ParseUint(state["f"], 10, 64); err == nil &&
		(g.Token < f || g.Token == f && owner != "me") {
		t.Fatalf("%q: token %d does not rise", state, g.Token)
	}
}
