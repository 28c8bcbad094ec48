package rueidisbackend_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// covers: W4, W13
func TestOneWaiterForManyGoroutines(t *testing.T) { redistest.OneWaiterForMany(t, "rueidis") }

// covers: W17, W13, G5
func TestManyWaitersAreQuiet(t *testing.T) { redistest.ManyWaiters(t, "rueidis", 2) }

// covers: W1, W2, W10
func TestEveryPublishIsLost(t *testing.T) { redistest.EveryPublishIsLost(t, "rueidis") }

func TestLongQueue(t *testing.T) { redistest.LongQueue(t, "rueidis") }

func TestNoHeartbeatInTheDialect(t *testing.T) { redistest.NoHeartbeat(t, "rueidis") }

func TestForbiddenKeys(t *testing.T) { redistest.ForbiddenKeys(t, "rueidis") }

func TestAll(t *testing.T) { redistest.All(t, "rueidis") }

func TestNative(t *testing.T) { redistest.Native(t, "rueidis") }

func TestReadersGiveUp(t *testing.T) { redistest.ReadersGiveUp(t, "rueidis") }

func TestObservationLeavesNothing(t *testing.T) { redistest.ObservationLeavesNothing(t, "rueidis") }
