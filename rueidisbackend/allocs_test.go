package rueidisbackend

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A free Lock and Unlock allocate little more than rueidis does for the recipe that everybody
// copies: SET NX PX, and a script that compares and deletes.
func TestAllocationsOfAPair(t *testing.T) {
	srv, most := testserver.SharedRedis(t), 20.0
	if redistest.HasIFEQ(srv) {
		most = 23
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:      []string{srv.Addr()},
		AlwaysPipelining: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	unlock := rueidis.NewLuaScript(
		`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", ` +
			`KEYS[1]) end return 0`)
	ctx, bare := context.Background(), key(t)
	redistest.Allocations(t, opened(t, "rueidis://"+srv.Addr()), most, func() error {
		owner := backend.NewOwner()
		if err := client.Do(ctx,
			client.B().Set().Key(bare).Value(owner).Nx().Px(
				30*time.Second).Build()).Error(); err != nil {
			return err
		}
		return unlock.Exec(ctx, client, []string{bare}, []string{owner}).Error()
	})
}
