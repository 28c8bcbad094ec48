// Package redisbackend keeps locks in Redis through go-redis: one server, Sentinel or Cluster.
//
//	b, err := backend.Open(ctx, "redis://:secret@127.0.0.1:6379/0") // after importing this package
//	b, err := redisbackend.New(client, redisbackend.Config{})       // with a client that the program has
//
// # URLs
//
//	redis://[user:password@]host[:6379][/database]
//	redis+sentinel://[user:password@]host[:26379][,host…]/master[/database]
//	redis+cluster://[user:password@]host[:6379][,host…]
//
// and the same with rediss for TLS. Percent-encode special characters in user and password. The query may have, each once:
//
//	prefix             of every key, default holdfast:
//	retention          how long a key's token counter is kept after its last hold, default 1m
//	request_timeout    bounds each request, default 3s
//	pool_size          connections per server, default 10 per CPU
//	allow_eviction     true: accept a maxmemory-policy that may drop locks
//	ca, cert, key      PEM files for TLS: whom to trust, and who we are
//	server_name        the name that the certificate must have, if it is not the host
//	sentinel_username  for the sentinels themselves, together with
//	sentinel_password
//
// # What it promises, and what not
//
// Mutual exclusion and rising fencing tokens while one Redis primary keeps its memory and its clock is not set forward:
// leases run on the server's wall clock. Replication is asynchronous: a failover can lose the newest grants, and then two
// hold at once, each with a token. Let the resource check the token if that must not do harm, or use a quorum or etcd.
//
// An evicting maxmemory-policy is refused with [backend.ErrUnsafe], since it loses locks without a word.
//
// # Permissions
//
// A user needs EVALSHA EVAL TIME GET SET DEL HMGET HSET HDEL PEXPIRE PTTL on the keys (~holdfast:*) and INFO,
// which an allow_eviction spares. Wake-ups need PUBLISH SUBSCRIBE UNSUBSCRIBE on the channels (&holdfast:*); without them Watch
// returns an error that is [errors.ErrUnsupported], and whoever waits polls.
package redisbackend
