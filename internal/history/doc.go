// Package history records who believed to hold which lock when, also in processes that are killed,
// and finds what no correct lock allows: two beliefs at once, a fencing token that does not rise.
//
// A belief begins when Lock has returned and ends when Unlock is called, when the lock is seen to
// be lost, or at the deadline that the guard itself gives, whichever comes first. It lies within
// what the store granted, so two beliefs that overlap are a broken lock and never a matter of
// measurement, provided that times are taken in this order:
//
//	g, err := l.Lock(ctx, key)
//	got := history.Event{Worker: "w1", Key: key, Token: g.Hold().Token}
//	b, err := rec.Begin(got, history.At(g.Until()))
//	… work …
//	err = b.End(history.At(g.Until())) // before Unlock: after it the next holder may come in
//	err = g.Unlock()
//
// # Processes
//
// [Now] reads one clock that all processes of a host share. Each process has a [Recorder] of its
// own, whose every line is in the file before the call returns, so that a SIGKILL loses nothing. A
// belief without an end ends at its deadline, or when its process was killed, if a [Recorder] noted
// that. [Read] joins the files, and [Check] judges.
package history
