package redisbackend

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestFenced(t *testing.T) { redistest.Fenced(t, "redis") }

func TestFencedInCluster(t *testing.T) {
	set := testserver.Cluster(t)
	redistest.FencedInCluster(t, set, set.URL())
}
