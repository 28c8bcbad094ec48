package testserver

import (
	"runtime/debug"
	"slices"
)

// BuildFlags returns the flags with which go build finds compiled what the test was compiled with:
// -race, if the test has it.
func BuildFlags() []string {
	if info, ok := debug.ReadBuildInfo(); ok &&
		slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return []string{"-race"}
	}
	return nil
}
