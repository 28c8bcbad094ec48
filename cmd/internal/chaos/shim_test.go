//go:build linux

package chaos

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestClock sets the clock of a server, which says what time it is then.
func TestClock(t *testing.T) {
	programs := []string{redis7}
	if asked() {
		programs = append(programs, redis8, valkey9)
	}
	for _, program := range programs {
		s := &stage{t: t}
		server := s.server(program)
		off := func() time.Duration {
			var parts []string
			reply, err := server.Do("TIME")
			s.must(err)
			for _, p := range reply.([]any) {
				parts = append(parts, fmt.Sprintf("%06s", p))
			}
			us, err := strconv.ParseInt(strings.Join(parts, ""), 10, 64)
			s.must(err)
			return time.Until(time.UnixMicro(us))
		}
		// Valkey asks for the time of day now and then only, and counts on by the processor's
		// clock.
		near := func(when string, least, most time.Duration) {
			t.Helper()
			for limit := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
				got := off()
				if least <= got && got <= most {
					return
				}
				if time.Now().After(limit) {
					t.Errorf("%s: the clock %s is off by %v, want %v to %v", program, when, got,
						least, most)
					return
				}
			}
		}
		const slack = time.Second // of a busy machine
		near("at first", -slack, slack)
		s.clocks[0].step(t, -time.Hour)
		near("set back", -time.Hour-slack, -time.Hour+slack)
		server.MustDo("SET", "k", "v", "PX", "5000")
		s.clocks[0].step(t, 2*time.Hour)
		near("set forward", time.Hour-slack, time.Hour+slack)
		if reply, err := server.Do("GET", "k"); reply != nil || err != nil {
			t.Errorf("%s: a key of five seconds after an hour is %v, %v", program, reply, err)
		}
		s.clocks[0].run(t, 100)
		near("100 times too fast", time.Hour+2*slack, 2*time.Hour)
		s.clocks[0].run(t, 0)
		gained := s.clocks[0].gained
		near("right again", time.Hour+gained-slack, time.Hour+gained+slack)
	}
}
