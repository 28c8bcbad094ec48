package redisbackend

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A free Lock and Unlock allocate little more than go-redis does for the recipe that everybody
// copies: SET NX PX, and a script that compares and deletes.
func TestAllocationsOfAPair(t *testing.T) {
	srv, most := testserver.SharedRedis(t), 17.0
	if redistest.HasIFEQ(srv) {
		most = 23
	}
	url := srv.URL()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	ctx := context.Background()
	const unlock = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", ` +
		`KEYS[1]) end return 0`
	sha, err := client.ScriptLoad(ctx, unlock).Result()
	if err != nil {
		t.Fatal(err)
	}
	bare := key(t)
	redistest.Allocations(t, opened(t, url), most, func() error {
		owner := backend.NewOwner()
		if err := client.SetNX(ctx, bare, owner, 30*time.Second).Err(); err != nil {
			return err
		}
		return client.EvalSha(ctx, sha, []string{bare}, owner).Err()
	})
}
