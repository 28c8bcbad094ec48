package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

// A Script is sent by its SHA1 (EVALSHA), and by its Source (EVAL) when the server answers NOSCRIPT.
type Script struct {
	Source string
	SHA1   string // in hex, as Redis computes it from Source
}

//go:embed *.lua common/*.lua fast/*.lua dialect/*.lua
var pieces embed.FS

// Scripts are one for each verb. Each takes the arguments that the [Layout] method of the same name makes, and its reply is
// read by the Decode function of that name. The string dialect has no queue, and so no Heartbeat.
type Scripts struct{ Acquire, Renew, Release, Heartbeat, Inspect Script }

// The pieces of our own layout. Between start and rest a script may have its short way.
const (
	start = "common/start"
	rest  = "common/lives common/clock common/head common/tombs common/change common/holders common/line common/commit"
	state = "dialect/head common/clock dialect/state common/tombs dialect/side" // of the string dialect
)

var (
	own = Scripts{
		Acquire:   newScript(start, "common/open fast/plain fast/acquire fast/stand", rest, "acquire"),
		Renew:     newScript(start, "common/open fast/renew", rest, "renew"),
		Release:   newScript(start, "common/open fast/settled fast/release fast/hand", rest, "release"),
		Heartbeat: newScript(start, "common/open", rest, "heartbeat"),
		Inspect:   newScript(start, "common/open", rest, "inspect"),
	}
	guarded = Scripts{
		Acquire:   newScript(start, "common/guard common/fit common/refuse fast/plain fast/acquire fast/stand", rest, "acquire"),
		Renew:     newScript(start, "common/guard common/fit fast/renew", rest, "renew"),
		Release:   newScript(start, "common/guard fast/settled fast/release fast/hand", rest, "release"),
		Heartbeat: newScript(start, "common/guard common/fit", rest, "heartbeat"),
		Inspect:   own.Inspect,
	}
	dialect = Scripts{
		Acquire: newScript(state, "dialect/acquire"),
		Renew:   newScript(state, "dialect/renew"),
		Release: newScript(state, "dialect/release"),
		Inspect: newScript(state, "dialect/inspect"),
	}
)

// Probe finds out what a user may do; see probe.lua.
var Probe = newScript("probe")

// Mark reads the guard's mark of a server; see common/guard.lua and [Layout.CheckMark].
var Mark = newScript("mark")

// newScript joins the pieces that names lists, by blanks, in their order.
func newScript(names ...string) Script {
	var b strings.Builder
	for _, name := range strings.Fields(strings.Join(names, " ")) {
		piece, err := pieces.ReadFile(name + ".lua")
		if err != nil {
			panic(err) // a piece that is not embedded is a mistake in the list above, and no program with it starts
		}
		b.Write(piece)
	}
	sum := sha1.Sum([]byte(b.String())) // how Redis names scripts; nothing is kept safe by it
	return Script{Source: b.String(), SHA1: hex.EncodeToString(sum[:])}
}
