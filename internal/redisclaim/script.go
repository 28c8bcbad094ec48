package redisclaim

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

// A Script is sent by its SHA1 (EVALSHA), and by its Source (EVAL) when the server answers NOSCRIPT. It has one key.
type Script struct {
	Source string
	SHA1   string // in hex, as Redis computes it from Source
}

//go:embed *.lua common/*.lua fast/*.lua
var pieces embed.FS

// The pieces that are common to all scripts but the probe. Between start and the rest a script may have its short way.
const (
	start = "common/start"
	rest  = "common/head common/change common/holders common/line common/commit"
)

// The scripts. Each takes the arguments that the [Layout] method of the same name makes, and its reply is read by the
// Decode function of that name.
var (
	Acquire = newScript(start, "fast/acquire fast/stand", rest, "acquire")
	Renew   = newScript(start, "fast/renew", rest, "renew")
	Release = newScript(start, "fast/release fast/hand", rest, "release")
	Inspect = newScript(start, rest, "inspect")
	Probe   = newScript("probe")
)

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
