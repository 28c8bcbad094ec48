// Package rueidisbackend keeps locks in Redis through rueidis: one server, Sentinel or Cluster.
// Scripts, keys and messages are those of package redisbackend, so clients of both may share a
// server and its locks.
//
//	b, err := backend.Open(ctx, "rueidis://:secret@127.0.0.1:6379/0") // this package is imported
//	b, err := rueidisbackend.New(option, rueidisbackend.Config{})     // a rueidis.ClientOption
//
// It is for many locks at once: all goroutines of a process share one connection, on which
// requests go together as they come, and one more for those who wait in the queue. And it is told
// of changes: the server tells it when a key that it watches was written, deleted or flushed, by
// RESP3 invalidation (CLIENT TRACKING). So a holder of a second or more learns within milliseconds
// that the hold was taken away, and a waiter that does not queue is woken without pub/sub. It
// needs Redis 6 or later and RESP3.
//
// # URLs
//
//	rueidis://[user:password@]host[:6379][/database]
//	rueidis+sentinel://[user:password@]host[:26379][,host…]/master[/database]
//	rueidis+cluster://[user:password@]host[:6379][,host…]
//	rueidis+unix://[user:password@]/path/of/the/socket[?db=database]
//
// and the same, but for the last, with rueidiss for TLS. Percent-encode special characters in user
// and password. The query may have, each once:
//
//	prefix             of every key, default holdfast:
//	retention          how long a key's token counter is kept after its last hold, default 15s
//	request_timeout    bounds each request, default 3s
//	allow_eviction     true: accept a maxmemory-policy that may drop locks
//	max_ttl            the longest lease; guards against servers that forget, see [Config.MaxTTL]
//	replica_lag        goes with max_ttl, default 10s for Sentinel, see [Config.ReplicaLag]
//	replicas           wait for so many replicas to have a grant, see [Config.Replicas]
//	dialect            string: locks as redsync and others have them, see [Config.Dialect]
//	held_answers       true: refuse TryLocks of keys known to be held at once, see [Config]
//	ca, cert, key      PEM files for TLS: whom to trust, and who we are
//	server_name        the name that the certificate must have, if it is not the host
//	sentinel_username  for the sentinels themselves, together with
//	sentinel_password
//
// # What it promises, and what not
//
// The same as package redisbackend: mutual exclusion and rising fencing tokens while one Redis
// primary keeps its memory and its clock is not set forward; and the same TTL outlasts a primary of
// a Cluster that hangs. The client asks who the primaries are each request_timeout, but not more
// often than each second, nor less than each 5s. An invalidation is a hint, and is never believed
// before the server was asked.
//
// # Permissions
//
// What a user must be allowed to do; opening tries all of it:
//
//	on the keys (~holdfast:*)      EVALSHA EVAL TIME GET SET DEL HGET HMGET HGETALL HSET HDEL
//	                               PEXPIRE PTTL
//	for the check of the server    INFO
//	on the channels (&holdfast:*)  PUBLISH SUBSCRIBE UNSUBSCRIBE
//	for invalidations              CLIENT MULTI EXEC
//	for a connection that is idle  PING
//
// Of CLIENT, TRACKING and CACHING are enough. allow_eviction spares INFO, unless max_ttl is set,
// which reads it too, and unless a quorum asks for the server's identity. Without the channels
// Watch of a claim in the queue returns an error that is [errors.ErrUnsupported], and whoever waits
// polls. Besides, List needs SCAN, a database other than 0 SELECT, [Config.Replicas] WAIT, and a
// cluster CLUSTER. In the string dialect the keys are those of ~PREFIX* and ~{PREFIX*.
//
// rueidis is github.com/redis/rueidis. Its old path, github.com/rueian/rueidis, ends at v0.0.100.
package rueidisbackend
