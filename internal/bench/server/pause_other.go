//go:build !linux

package server

import "time"

func exactly() {}

func pause(d time.Duration) { time.Sleep(d) }
