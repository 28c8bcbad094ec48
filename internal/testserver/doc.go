// Package testserver starts real servers for tests, on loopback, and breaks what lies between them
// and their clients.
//
//	srv := testserver.Redis(t)              // one redis-server for this test
//	srv := testserver.SharedRedis(t)        // one for all tests of the binary, each with its keys
//	set := testserver.Sentinel(t)           // a primary, two replicas, three sentinels
//	set := testserver.Cluster(t)            // three primaries
//	p   := testserver.NewProxy(t, srv.Addr()) // a TCP proxy that holds, delays, swallows and cuts
//
// The environment variable HOLDFAST_REDIS_SERVER names another redis-server or valkey-server than
// the one in PATH: `make redis-versions` runs the Redis suites on each that we support. A test that
// needs a version says so by [OnlyWhere].
//
// Nothing is skipped: a server that cannot start fails its test, and says to run make deps where a
// program is missing. A server's log is printed when its test fails.
//
// # Processes
//
// Every process ends with its test, and on Linux also with the test binary, however that ends
// (SIGKILL included). The kernel ties a child to the thread that started it, so one goroutine per
// process keeps that thread until the process is reaped; it is gone when the test's cleanups are.
// Only [SharedRedis] outlives its test: a package that uses it writes
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.StopAfter(m)) }
//
// # Ports
//
// Ports are taken below the kernel's ephemeral range. There a client that keeps dialing a dead
// server cannot be given the server's own port as its local one (and connect to itself), so Restart
// and Refuse find their port free again.
package testserver
