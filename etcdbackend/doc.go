// Package etcdbackend keeps locks in etcd.
//
//	// after importing this package:
//	b, err := backend.Open(ctx, "etcd://h1:2379,h2:2379,h3:2379/locks")
//	// with a client that the program has:
//	b, err := etcdbackend.New(client, etcdbackend.Config{})
//
// # URLs
//
//	etcd://[user:password@]host[:2379][,host…][/prefix]
//	etcd+unix://[user:password@]/path/of/the/socket
//
// and the first with etcds for TLS. Percent-encode special characters in user and password. The
// prefix of all keys is holdfast/ if none is given. The query may have, each once:
//
//	layout           native (default), or etcdctl: exclude `etcdctl lock NAME` and
//	                 concurrency.Mutex on the same name
//	request_timeout  bounds each verb, default 3s
//	dial_timeout     bounds the log-in, default 5s
//	ca, cert, key    PEM files for TLS: whom to trust, and who we are
//	server_name      the name that the certificate must have, if it is not the host
//
// # What it promises, and what not
//
// Mutual exclusion, first come first served, and fencing tokens that rise over all locks of the
// cluster (those that All takes in one write have the same), as long as a majority of members keeps
// its disks and no member's clock runs faster than the clients' by more than the locker allows for.
// Without a majority nothing is granted or renewed, and holds end. A cluster that is restored from
// a snapshot counts revisions anew, and so tokens: bump the revision when restoring.
//
// A token is the create revision of the hold's key, shifted; see [Revision].
//
// Servers from 3.4 on work. Those before 3.4.42, 3.5.28 and 3.6.9 may answer reads from the past
// (etcd #20418) and those before 3.4.38, 3.5.23 and 3.6.5 may renew a lease that is revoked
// (#20813): no grant relies on a read, but the end of a lease relies on the server. etcd's
// grpc-proxy is not supported.
//
// # Leases
//
// A lease is shared by all claims of a client whose TTL is of the same length, up to 4096 of them,
// so a keepalive is one request however many locks are held. From a TTL of 6s on it is a third
// longer than the TTL, which is what a crashed holder may block others for. A claim that ends
// without a word is removed when the others' lease is kept alive.
//
// A hold is a key on such a lease, and a second one, its shadow, on a lease that is never kept
// alive. A leader that was paused may end leases early when it goes on (#15247). The hold's shadow
// keeps others out then until nobody can believe in the hold any more; but not etcd's own recipe in
// the layout etcdctl. A crashed holder leaves its shadow for 20 minutes at most, or four times its
// TTL if that is longer, if nobody locks the key.
//
// # In a quorum
//
// A cluster is one node of a quorum, and not one for each member. It is known by a number that is
// kept below the prefix: under another prefix the same cluster is not recognised, see
// [Backend.Identity].
//
// # Permissions
//
// A user needs a role with readwrite on the prefix; in the layout etcdctl also on holdfast-side/.
// Of the kinds of tokens (--auth-token) jwt is the better one: every member knows it at once.
package etcdbackend
