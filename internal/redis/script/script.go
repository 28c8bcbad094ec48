package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

// A Script is sent by its SHA1 (EVALSHA), and by its Source (EVAL) when the server answers
// NOSCRIPT.
type Script struct {
	Source string
	SHA1   string // in hex, as Redis computes it from Source
}

// Scripts are one for each verb. Each takes the arguments that the [Layout] method of the same name
// makes, and its reply is read by the Decode function of that name. The string dialect has no
// queue, and so no Heartbeat.
type Scripts struct{ Acquire, Renew, Release, Heartbeat, Inspect Script }

//go:embed *.lua lib/*.lua
var files embed.FS

var (
	own = Scripts{
		Acquire: load("acquire"), Renew: load("renew"), Release: load("release"), Heartbeat: load("heartbeat"),
		Inspect: load("inspect"),
	}
	stringDialect = load("dialect") // one script for all verbs; its last argument names the verb
	dialect       = Scripts{Acquire: stringDialect, Renew: stringDialect, Release: stringDialect, Inspect: stringDialect}
)

// Commands are the commands that the scripts run, INFO only with a guard. A user of the server
// needs them all, on the keys (PUBLISH on the channels), and EVALSHA and EVAL.
var Commands = []string{
	"DEL", "GET", "HDEL", "HGET", "HGETALL", "HMGET", "HSET", "INFO", "PEXPIRE", "PTTL", "PUBLISH", "SET", "TIME",
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
func load(verb string) Script { return newScript(read(verb)) }

func newScript(text string) Script {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(line)
		libraries, _ := strings.CutPrefix(line, "-- uses: ")
		if libraries == line {
			continue
		}
		for _, library := range strings.Fields(libraries) {
			b.WriteString(read(library))
		}
	}
	sum := sha1.Sum([]byte(b.String())) // how Redis names scripts; nothing is kept safe by it
	return Script{Source: b.String(), SHA1: hex.EncodeToString(sum[:])}
}

func read(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // the name is written in a file beside this one; no program starts without it
	}
	return string(text)
}
