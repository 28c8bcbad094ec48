package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
	"sync"
)

// A Script is sent by its SHA1 (EVALSHA), and by its Source (EVAL) when the server answers
// NOSCRIPT. Two are equal if they are one. It is put together when it is first used, so a program
// pays at its start for none.
type Script struct{ *assembly }

type assembly struct {
	text         string // with lines "-- uses: …"; read from file if empty
	file         string
	once         sync.Once
	source, sha1 string
}

// Source is what the server runs.
func (a *assembly) Source() string { a.once.Do(a.assemble); return a.source }

// SHA1 is in hex, as Redis computes it from Source.
func (a *assembly) SHA1() string { a.once.Do(a.assemble); return a.sha1 }

//go:embed *.lua lib/*.lua
var files embed.FS

var (
	own = struct {
		Acquire, TryAcquireAll, Renew, Release, TryReleaseAll, ReleaseAll, Heartbeat,
		Inspect Script
	}{
		load("acquire"), load("tryacquireall"), load("renew"), load("release"),
		load("tryreleaseall"), load("releaseall"),
		load("heartbeat"), load("inspect"),
	}
	stringDialect = load("dialect")
)

// Commands are the commands that the scripts run, INFO only with a guard. A user of the server
// needs them all, on the keys (PUBLISH on the channels), and EVALSHA and EVAL.
var Commands = []string{
	"DEL", "GET", "HDEL", "HGET", "HGETALL", "HMGET", "HSET", "INFO", "PEXPIRE", "PTTL", "PUBLISH",
	"SET", "TIME",
}

// Probe finds out what a user may do; see probe.lua.
var Probe = load("probe")

// Mark reads the guard's mark of a server, empty if it has none; see lib/guard.lua and
// [Layout.CheckMark].
var Mark = newScript("return redis.pcall('GET', KEYS[1]) or ''\n")

// Saved reads what was saved last, under [Layout.StateKey]; see [DecodeSaved].
var Saved = load("saved")

// load returns the script of a verb: its file, with the libraries that a line "-- uses: …" names in
// the place of that line.
func load(verb string) Script { return Script{&assembly{file: verb}} }

func newScript(text string) Script { return Script{&assembly{text: text}} }

func (a *assembly) assemble() {
	text := a.text
	if text == "" {
		text = read(a.file)
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(line)
		libraries, uses := strings.CutPrefix(line, "-- uses: ")
		if !uses {
			continue
		}
		for _, library := range strings.Fields(libraries) {
			b.WriteString(read(library))
		}
	}
	a.source = b.String()
	sum := sha1.Sum([]byte(a.source)) // how Redis names scripts; nothing is kept safe by it
	a.sha1 = hex.EncodeToString(sum[:])
}

func read(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // the name is written in a file beside this one; no program starts without it
	}
	return string(text)
}
