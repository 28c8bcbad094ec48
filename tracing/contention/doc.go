// Package contention shows what this process does with locks, now and in sum: a page of what it
// holds and waits for, and a profile of where waiting costs time. It needs no telemetry.
//
//	tracker := contention.New(contention.Config{})
//	// Or locker.Observers(others…, tracker):
//	cfg := locker.Config{Observer: tracker, Classes: []string{"order-*"}}
//	l, err := locker.New(b, locker.Bare, cfg)
//	http.Handle("/debug/locks/", tracker)
//
// Then /debug/locks/ is the page, /debug/locks/json the same for programs, and
//
//	go tool pprof http://localhost:8080/debug/locks/profile
//
// opens the profile of who waited, and /debug/locks/holders blames who held meanwhile; ?seconds=30
// has either begin now. The page shows keys in full, and places in the source: serve it to those
// who may see net/http/pprof.
package contention
