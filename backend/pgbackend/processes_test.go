package pgbackend

import (
	"testing"

	"github.com/holdfast-go/holdfast/backend/backendtest"
)

// TestProcesses has processes compete, take turns, hand holds on and sell, of which some are killed
// and stopped. They fill the processors, so one is after the other.
func TestProcesses(t *testing.T) {
	url := server(t).URL()
	for _, suite := range []struct {
		name string
		run  func(t *testing.T, url string)
	}{
		{"processes", backendtest.Processes},
		{"fair", backendtest.FairProcesses},
		{"killed-waiter", backendtest.KilledWaiter},
		{"relay", backendtest.Relay},
		{"one-open", backendtest.OneOpen},
	} {
		t.Run(suite.name, func(t *testing.T) { suite.run(t, url) })
	}
}

// TestFlashSale is by itself for make flash-sale.
func TestFlashSale(t *testing.T) { backendtest.FlashSale(t, server(t).URL()) }
