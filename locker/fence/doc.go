// Package fence refuses, at the resource, what comes from a holder that is late.
//
// A holder can be stopped between its last look at the lock and its write: by the scheduler, by its
// host, by the network. When the write arrives, another may hold the lock. No lock can prevent
// that; the resource can, if it gets the fencing token of the hold with each operation and refuses
// those that are older than the newest it has seen. This package does so
//
//   - in the memory of a process, such as a server: [Gate];
//   - over HTTP: [Transport] sends the token, [Handler] checks it;
//   - in SQL: [Admit] guards a transaction, [Exec] one statement that checks and writes;
//   - in the Redis that has the lock: [InRedis];
//   - in the etcd that has the lock: the method Proof of [etcdbackend.Backend].
//
// Wherever one of them refuses, the error is [ErrStale], and nothing was done. Put the token, or
// what is made of it here, into the value that a guard protects: a [locker.Binder] gets the hold.
//
// Tokens of one lock are compared with each other alone. Data that several locks protect needs a
// key for each. Whoever reads, computes and writes must show its token at the read already, else an
// older holder may write in between. Tokens are those of exclusive holds: several who share a lock
// are not in order.
//
// [etcdbackend.Backend]:
// https://pkg.go.dev/github.com/holdfast-go/holdfast/etcdbackend#Backend.Proof
package fence
