package redisbackend_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// covers: W4, W13
func TestOneWaiterForManyGoroutines(t *testing.T) { redistest.OneWaiterForMany(t, "redis") }

// covers: W17, W13, G5
func TestManyWaitersAreQuiet(t *testing.T) { redistest.ManyWaiters(t, "redis", 1) }

// covers: W1, W2, W10
func TestEveryPublishIsLost(t *testing.T) { redistest.EveryPublishIsLost(t, "redis") }

func TestLongQueue(t *testing.T) { redistest.LongQueue(t, "redis") }

func TestNoHeartbeatInTheDialect(t *testing.T) { redistest.NoHeartbeat(t, "redis") }

func TestForbiddenKeys(t *testing.T) { redistest.ForbiddenKeys(t, "redis") }

func TestAll(t *testing.T) { redistest.All(t, "redis") }

func TestNative(t *testing.T) { redistest.Native(t, "redis") }

func TestReadersGiveUp(t *testing.T) { redistest.ReadersGiveUp(t, "redis") }

func TestObservationLeavesNothing(t *testing.T) { redistest.ObservationLeavesNothing(t, "redis") }

func TestTrackingRefused(t *testing.T) { redistest.TrackingRefused(t, "redis") }
