// Package chaos has processes lock on real servers while both are killed, stopped, cut off,
// flushed, filled up, shut out, set to another time, moved and replaced, and judges what they
// believed. Its tests are all there is of it, on Linux.
//
//	make chaos                                    12 scenarios, some ten seconds of faults each
//	make chaos CHAOS=1h                           all of them, again and again;
//	                                              PAGE=1 writes docs/chaos.md
//	make chaos SCENARIO=redis-guard SEED=4711     repeats a run
//
// A scenario is a row of a table: which store, which faults, and what is promised under them
// (docs/guarantees.md). A seed decides which faults come when, to whom, and for how long; what the
// servers and the scheduler do is not the seed's, so a run that failed may need to be repeated.
//
// Each of three worker processes, which are this test binary started again, has four goroutines and
// a client of its own: go-redis, rueidis, and one that uses no native commands. They lock, in all
// ways that there are, read and write stored values, and write to what a token protects, and record
// it all with one clock. The parent inflicts the faults. When they are over, everybody must get
// every key in time, and at the end nothing may be left in the store.
//
// Two judges look at a run: internal/history at beliefs and tokens, internal/linear (porcupine) for
// an order of locks, stored values and fenced writes that explains their answers. A file beside
// them takes no token older than the newest: it must never refuse one who believes, and loses no
// update.
//
// The clocks of servers are changed by testdata/clock.c, which cc makes a library of that is
// preloaded. Go programs ask the kernel, and do not see it: the clocks of clients, and rates beyond
// one percent on both sides, are the simulation's (internal/redissim), and those of etcd are tested
// nowhere.
package chaos
