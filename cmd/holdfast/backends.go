package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	_ "github.com/holdfast-go/holdfast/backend/filebackend" // file://
	_ "github.com/holdfast-go/holdfast/backend/membackend"  // mem://
	_ "github.com/holdfast-go/holdfast/backend/pgbackend"   // postgres://

	_ "github.com/holdfast-go/holdfast/etcdbackend"    // etcd://, etcds://
	_ "github.com/holdfast-go/holdfast/redisbackend"   // redis://, rediss://, Sentinel, Cluster
	_ "github.com/holdfast-go/holdfast/redlock"        // redlock://, a majority of the others
	_ "github.com/holdfast-go/holdfast/rueidisbackend" // rueidis://, rueidiss://, Sentinel, Cluster
)

// What go-redis logs of failed connections is in the errors already, and would stand between the
// lines of the command's own output. Its logger is global, so silencing it is for a program to do
// and not for a library.
func init() { redis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
