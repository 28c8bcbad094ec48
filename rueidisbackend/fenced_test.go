package rueidisbackend

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestFenced(t *testing.T) { redistest.Fenced(t, "rueidis") }

func TestFencedInCluster(t *testing.T) {
	testserver.OnlyInAll(t, "a cluster")
	set := testserver.Cluster(t)
	redistest.FencedInCluster(t, set, "rueidis"+strings.TrimPrefix(set.URL(), "redis"))
}

// covers: B9
func TestSilentPrimary(t *testing.T) {
	testserver.OnlyInAll(t, "a cluster")
	set := testserver.Cluster(t)
	redistest.SilentPrimary(t, set, "rueidis"+strings.TrimPrefix(set.URL(), "redis"))
}

func TestHungPrimary(t *testing.T) { redistest.HungPrimary(t, "rueidis") }
