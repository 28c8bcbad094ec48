package redisclaim

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// A Script is sent by its SHA1 (EVALSHA), and by its Source (EVAL) when the server answers NOSCRIPT. It has one key.
type Script struct {
	Source string
	SHA1   string // in hex, as Redis computes it from Source
}

//go:embed common.lua
var common string

//go:embed acquire.lua
var acquire string

//go:embed renew.lua
var renew string

//go:embed release.lua
var release string

//go:embed inspect.lua
var inspect string

//go:embed probe.lua
var probe string

// The scripts. Each takes the arguments that the [Layout] method of the same name makes, and its reply is read by the
// Decode function of that name.
var (
	Acquire = newScript(common + acquire)
	Renew   = newScript(common + renew)
	Release = newScript(common + release)
	Inspect = newScript(common + inspect)
	Probe   = newScript(probe)
)

func newScript(source string) Script {
	sum := sha1.Sum([]byte(source)) // how Redis names scripts; nothing is kept safe by it
	return Script{Source: source, SHA1: hex.EncodeToString(sum[:])}
}
