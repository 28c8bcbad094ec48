// Package redisbackend keeps locks in Redis through go-redis: one server, Sentinel or Cluster.
//
//	b, err := backend.Open(ctx, "redis://:secret@127.0.0.1:6379/0") // this package is imported
//	b, err := redisbackend.New(client, redisbackend.Config{})       // a client of the program
//
// # URLs
//
//	redis://[user:password@]host[:6379][/database]
//	redis+sentinel://[user:password@]host[:26379][,host…]/master[/database]
//	redis+cluster://[user:password@]host[:6379][,host…]
//	redis+unix://[user:password@]/path/of/the/socket[?db=database]
//
// and the same, but for the last, with rediss for TLS. Percent-encode special characters in user
// and password. The query may have, each once:
//
//	prefix             of every key, default holdfast:
//	retention          how long a key's token counter is kept after its last hold, default 15s
//	request_timeout    bounds each request, and the making of a connection, default 3s
//	pool_size          connections per server, default 2 per CPU, in a cluster 10
//	allow_eviction     true: accept a maxmemory-policy that may drop locks
//	max_ttl            the longest lease; guards against servers that forget, see [Config.MaxTTL]
//	replica_lag        goes with max_ttl, default 10s for Sentinel, see [Config.ReplicaLag]
//	replicas           wait for so many replicas to have a grant, see [Config.Replicas]
//	dialect            string: locks as redsync and others have them, see [Config.Dialect]
//	ca, cert, key      PEM files for TLS: whom to trust, and who we are
//	server_name        the name that the certificate must have, if it is not the host
//	sentinel_username  for the sentinels themselves, together with
//	sentinel_password
//
// # What it promises, and what not
//
// Mutual exclusion and rising fencing tokens while one Redis primary keeps its memory and its
// clock is not set forward: leases run on the server's wall clock. A server that restarts without
// its data, and a failover to a replica that lacks the newest grants, lets two hold at once, each
// with a token. max_ttl makes such a server wait until the lost leases are over; or let the
// resource check the token, or use a quorum or etcd.
//
// In a Cluster, a hold outlasts a primary that hangs if its replica has the grant, and the TTL is
// 8/5 of cluster-node-timeout, plus twice request_timeout and 4s, or more: 40s by default. While a
// request has no answer, the client asks each third of request_timeout who the primaries are.
//
// An evicting maxmemory-policy is refused with [backend.ErrUnsafe], since it loses locks without a
// word.
//
// # go-redis' own log
//
// go-redis writes what it meets, such as failed connections and Sentinel's switches, to standard
// error. Its logger is one for the whole process and cannot be read, so this package leaves it
// alone: a program that does not want those lines calls redis.SetLogger. What matters to locks is
// in their errors.
//
// # Permissions
//
// What a user must be allowed to do; opening tries all of it:
//
//	on the keys (~holdfast:*)      EVALSHA EVAL TIME GET SET DEL HGET HMGET HGETALL HSET HDEL
//	                               PEXPIRE PTTL
//	for the check of the server    INFO
//	on the channels (&holdfast:*)  PUBLISH SUBSCRIBE UNSUBSCRIBE
//	for a connection that is idle  PING
//
// allow_eviction spares INFO, unless max_ttl is set, which reads it too, and unless a quorum asks
// for the server's identity. Without the channels Watch returns an error that is
// [errors.ErrUnsupported], and waiters poll. Besides, List needs SCAN, Observe CLIENT
// TRACKING, a database other than 0 SELECT, [Config.Replicas] WAIT, and a cluster CLUSTER and
// COMMAND. In the string dialect the keys are those of ~PREFIX* and ~{PREFIX*.
package redisbackend
