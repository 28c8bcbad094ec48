// Package backendtest is the definition of a backend: a conformance suite that every backend runs,
// a wrapper that makes any backend misbehave as a network does, and tests over several processes.
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, backendtest.Harness{Open: func(t testing.TB) backend.Backend { … }})
//	}
//
// # Writing a harness
//
// A [Harness] needs Open, which returns another client of one real store; everything else makes the
// suite see more:
//
//  1. Open. The suite opens several clients, closes them, and keeps apart from everybody else by
//     the names of its keys, so the store may be shared with other tests.
//  2. Drop and PutForeign, which do to a key what an operator does by mistake.
//  3. Leftovers, which lists what is still held: the suite asks after each case. Without it,
//     Inspect is asked.
//  4. Restart, if the store is the test's own.
//  5. Bubble, if the store lives in the process and knows no time but package time's. Waiting then
//     takes no time.
//
// Then break the backend on purpose (drop the owner's check, skip the tombstone) and see the suite
// fail.
//
// # What a case says
//
// When a case fails, it prints why its rule exists: what happens to programs on a backend that
// breaks it, and where it happened before. A case for a capability that the backend does not claim
// is not run. Instead the suite checks that the backend refuses what it says it cannot do.
//
// # Seeds
//
// Cases under faults ([Faulty]) draw a seed each time, and print it with the command that repeats
// it:
//
//	go test -run 'TestConformance/storm' -backendtest.seed=42
//
// HOLDFAST_SEED in the environment does the same. The seed repeats the faults, not the scheduler: a
// failure that needs both may take some runs.
//
// # Processes
//
// [Processes] starts the test binary again, as workers that compete for a lock of a real store, and
// kills one. So do [FairProcesses], [KilledWaiter], [Relay], [OneOpen] and [FlashSale], with other
// work. The package calls [Main] first thing in TestMain. FlashSale sells as many units as the flag
// -backendtest.units says.
package backendtest
