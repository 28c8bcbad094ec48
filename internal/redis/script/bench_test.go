package script

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// BenchmarkUncontendedPair reports what an acquisition and its release cost the server, by the
// server's own count: the network and the client are not in it.
func BenchmarkUncontendedPair(b *testing.B) {
	srv := testserver.Redis(b)
	l, _ := NewLayout("", 0, 0)
	var names, sources [2]string
	for i, s := range []Script{own.Acquire, own.Release} {
		names[i], sources[i] = s.SHA1(), s.Source()
		srv.MustDo("SCRIPT", "LOAD", sources[i])
	}
	c := backend.Claim{
		Key: "bench", TTL: 30e9, NoneInFlight: true,
		Meta: backend.Meta{Service: "shop", Host: "host-1", PID: 4711},
	}
	srv.MustDo("CONFIG", "RESETSTAT")
	for i := range b.N {
		c.Owner = "0123456789abcdefghijkl." + strconv.Itoa(i)
		srv.MustDo(append([]string{"EVALSHA", names[0], "1", l.Key(c.Key)},
			l.Acquire(c).Args...)...)
		srv.MustDo(append([]string{"EVALSHA", names[1], "1", l.Key(c.Key)},
			l.Release(c).Args...)...)
	}
	b.StopTimer()
	found := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`).FindStringSubmatch(
		srv.MustDo("INFO", "commandstats"))
	var us float64
	if len(found) == 2 {
		_, _ = fmt.Sscan(found[1], &us)
	}
	b.ReportMetric(us/float64(b.N), "server-µs/pair")
}
