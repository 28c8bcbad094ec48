package redisbackend

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestFenced(t *testing.T) { redistest.Fenced(t, "redis") }

func TestFencedInCluster(t *testing.T) {
	testserver.OnlyInAll(t, "a cluster")
	set := testserver.Cluster(t)
	redistest.FencedInCluster(t, set, set.URL())
}

// covers: B9
func TestSilentPrimary(t *testing.T) {
	testserver.OnlyInAll(t, "a cluster")
	set := testserver.Cluster(t)
	redistest.SilentPrimary(t, set, set.URL())
}

func TestHungPrimary(t *testing.T) { redistest.HungPrimary(t, "redis") }
