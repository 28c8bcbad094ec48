package redisbackend_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Before TestMain, and before anything is started: this process may be one that Processes started.
func init() { backendtest.Main() }

// covers: G6, B11
func TestProcesses(t *testing.T) {
	backendtest.Processes(t, testserver.SharedRedis(t).URL())
}

// covers: W4, W11
func TestFairProcesses(t *testing.T) {
	testserver.OnlyInAll(t, "seconds of all processors")
	if testing.Short() {
		t.Skip("seconds of all processors")
	}
	backendtest.FairProcesses(t, testserver.SharedRedis(t).URL())
}

// covers: W5, W9
func TestKilledWaiter(t *testing.T) {
	backendtest.KilledWaiter(t, testserver.SharedRedis(t).URL())
}

// covers: G6, B11
func TestFlashSale(t *testing.T) {
	backendtest.FlashSale(t, testserver.SharedRedis(t).URL())
}

// covers: G6, B11
func TestOneOpen(t *testing.T) {
	testserver.OnlyInAll(t, "processes that are killed")
	backendtest.OneOpen(t, testserver.SharedRedis(t).URL())
}

// covers: G6, B4
func TestRelay(t *testing.T) {
	backendtest.Relay(t, testserver.SharedRedis(t).URL())
}
