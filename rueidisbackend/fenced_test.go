package rueidisbackend

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestFenced(t *testing.T) { redistest.Fenced(t, "rueidis") }

func TestFencedInCluster(t *testing.T) {
	set := testserver.Cluster(t)
	redistest.FencedInCluster(t, set, "rueidis"+strings.TrimPrefix(set.URL(), "redis"))
}
