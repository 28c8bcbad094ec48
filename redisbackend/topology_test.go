package redisbackend

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestTLS(t *testing.T) { redistest.TLS(t, "redis") }

func TestUserAndDatabase(t *testing.T) { redistest.UserAndDatabase(t, "redis") }

func TestSentinel(t *testing.T) { redistest.Sentinels(t, "redis") }

func TestCluster(t *testing.T) {
	redistest.Cluster(t, "redis", func(set *testserver.ClusterSet) backend.Backend {
		mine := redis.NewClusterClient(&redis.ClusterOptions{Addrs: set.Addrs()})
		t.Cleanup(func() { _ = mine.Close() })
		return on(t, mine, Config{})
	})
}
