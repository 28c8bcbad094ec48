//go:build race

package redissim

const raceEnabled = true
