// Package redissim runs the code that ships for Redis in virtual time, for many seeds: the real
// locker on the real internal/redis store, with its native commands, subscriptions and heartbeats,
// and the Lua that ships, run by internal/smallredis. Its tests are all there is of it.
//
//	make sim SEEDS=10000
//	go test ./internal/redissim -run 'TestSimulation/cluster' -seed=4711 # again, with its history
//
// A seed decides how many servers, clients and keys there are, what each key is for, how fast each
// clock runs and how it is set, what befalls each request and message, when servers pause, restart,
// fail over, forget or run out of memory, when SET … IFEQ comes and goes, and when clients pause
// and give up. A kind of world decides which of that is promised to be survived:
//
//   - one: a server that keeps its memory; some clients use native commands, some only scripts.
//   - cluster: several primaries, whose clocks are set up to half a minute apart; or which hand
//     slots on to each other, key by key, and have nearly one clock.
//   - failover: a server with the guard, which restarts empty or with a lost tail, is flushed, and
//     is replaced by a replica that lags behind, while the old primary goes on for a while.
//   - slower: a server that is replaced by one that lacks nothing and whose clock is behind; some
//     clients count their connections, as both libraries do, others do not.
//   - record: a store of records, as under mem:// and file://, that is opened again with all that
//     it had or with what outlives a reboot.
//   - dialect: locks as other libraries have them, one of which uses them too.
//   - quorum: redlock on three to five servers, which restart one by one and in majorities. Some
//     have the guard and forget; some keep what they have, and their clients use native commands;
//     one may count its tokens as etcd does. Clients have used the keys on single nodes before, and
//     use locker.All. A third of the seeds has no faults, and everybody gets every key in time.
//
// The network executes one thing at a time, when every goroutine of the world waits for something,
// and no two of its events share an instant. What is asked for at one instant is put in order by
// what it is, not by which goroutine came first, and so is who gives up at one; and no two
// time-outs are the same in whole milliseconds. So a seed gives one history, but for Go's own
// choices, which decide of less than one seed in 1,000 (TestRepeats). A seed that fails prints its
// history.
//
// What is judged: beliefs do not overlap, or add up to the limit of permits; tokens rise, by
// internal/history and by porcupine (internal/linear), which also looks for an order that explains
// what was read and written: values in the store, and registers that a token protects. And when all
// faults are over everybody gets every key in time; and when every call has returned nothing is
// left in a server. No script leaves a lock that does not expire.
//
// The same is run with one safeguard of the Lua removed, which must be found within a number of
// seeds. How often each is found, in seeds that are not stopped at the first:
//
//	go test ./internal/redissim -run TestVariants -v -rates=400
package redissim
