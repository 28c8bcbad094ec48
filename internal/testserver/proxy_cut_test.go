package testserver_test

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestProxyCutsBeforeTheRequest(t *testing.T) {
	s, p := proxied(t)
	p.Set(testserver.Fault{Mode: testserver.CutBeforeRequest, Match: testserver.Containing("SET")})
	c := dial(t, p.Addr())
	c.send("PING")
	c.want("+PONG")
	c.send("SET k v")
	c.wantEnd()
	if got, _ := s.Do("GET", "k"); got != nil {
		t.Errorf("GET = %v: the request was forwarded", got)
	}
	if got := p.Counts(); got.Cut != 1 || got.Forwarded != 1 {
		t.Errorf("counts %+v", got)
	}
}

func TestProxyExecutesThenCuts(t *testing.T) {
	s, p := proxied(t)
	p.Set(testserver.Fault{
		Mode:  testserver.ExecuteThenCut,
		Match: testserver.Containing("INCR", "k"), Next: 2,
	})
	for range 2 {
		c := dial(t, p.Addr())
		// The reply of an earlier request in the pipeline is not the one that is lost.
		c.send("PING", "INCR k")
		c.want("+PONG")
		c.wantEnd()
	}
	c := dial(t, p.Addr())
	c.send("INCR k")
	c.want(":3") // both were executed, and only the next 2 were asked for
	if got := p.Counts(); got.Dropped != 2 || got.Cut != 2 {
		t.Errorf("counts %+v", got)
	}
	if got := s.MustDo("GET", "k"); got != "3" {
		t.Errorf("GET = %s", got)
	}
}

func TestProxyExecutesThenCutsWhatIsNotRESP(t *testing.T) {
	s, p := proxied(t)
	p.Set(testserver.Fault{Mode: testserver.ExecuteThenCut, Next: 1})
	c := dial(t, p.Addr())
	fmt.Fprint(c.conn, "INCR k\r\n")
	c.wantEnd()
	if got := s.MustDo("GET", "k"); got != "1" {
		t.Errorf("GET = %s", got)
	}
}

func TestProxyDelays(t *testing.T) {
	const d = 60 * time.Millisecond
	for name, mode := range map[string]testserver.Mode{
		"request": testserver.Delay,
		"reply":   testserver.DelayReply,
	} {
		t.Run(name, func(t *testing.T) {
			s, p := proxied(t)
			p.Set(testserver.Fault{Mode: mode, Match: testserver.Containing("INCR"), Delay: d})
			c := dial(t, p.Addr())
			begin := time.Now()
			c.send("INCR k", "INCR k", "INCR k")
			p.Await(func(c testserver.Counts) bool { return c.Delayed > 0 })
			executed := s.MustDo("EXISTS", "k") == "1"
			if early := time.Since(begin) < d; early &&
				executed != (mode == testserver.DelayReply) {
				t.Errorf("executed early: %v", executed)
			}
			c.want(":1", ":2", ":3")
			// A pipeline is late by one delay, not by one for each request.
			if took := time.Since(begin); took < d || took > 10*time.Second {
				t.Errorf("took %v, want %v", took, d)
			}
		})
	}
}

func TestProxyHalfOpenNeverRecovers(t *testing.T) {
	s, p := proxied(t)
	c, other := dial(t, p.Addr()), dial(t, p.Addr())
	c.send("PING")
	c.want("+PONG")
	p.Set(testserver.Fault{Mode: testserver.HalfOpen, Match: testserver.Containing("lost")})
	c.send("SET k lost")
	p.Await(func(c testserver.Counts) bool { return c.Swallowed == 1 })
	other.send("PING")
	other.want("+PONG")
	p.Pass()
	// A stream that lost a part cannot go on, or replies would meet the wrong requests.
	c.send("SET k v")
	p.Await(func(c testserver.Counts) bool { return c.Swallowed == 2 })
	c.wantSilence()
	if got, _ := s.Do("GET", "k"); got != nil {
		t.Errorf("GET = %v", got)
	}
	_ = c.conn.Close()
	p.Await(func(c testserver.Counts) bool { return c.Open == 1 })
}

func TestProxyHalfOpenStrikesListeners(t *testing.T) {
	s, p := proxied(t)
	c := dial(t, p.Addr())
	c.send("SUBSCRIBE ch")
	c.want("*3", "$9", "subscribe", "$2", "ch", ":1")
	p.Set(testserver.Fault{Mode: testserver.HalfOpen})
	s.MustDo("PUBLISH", "ch", "lost")
	c.wantSilence()
	s.Kill() // the server's end is not seen either
	c.wantSilence()
}

func TestProxyRefuses(t *testing.T) {
	_, p := proxied(t)
	c := dial(t, p.Addr())
	c.send("PING")
	c.want("+PONG")
	p.Set(testserver.Fault{Mode: testserver.Refuse})
	if conn, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial = %v, %v", conn, err)
	}
	c.send("PING")
	c.want("+PONG") // present connections live on
	p.CutAll()
	c.wantEnd()
	p.Pass()
	again := dial(t, p.Addr())
	again.send("PING")
	again.want("+PONG")
}

// A program that is being started has the sockets of this process until its exec; one that listens
// then is gone all the same, and its port is free to listen on again.
func TestProxyRefusesWhileProgramsStart(t *testing.T) {
	_, p := proxied(t)
	over := make(chan struct{})
	var starts sync.WaitGroup
	for range 3 {
		starts.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	for range 300 {
		p.Set(testserver.Fault{Mode: testserver.Refuse})
		if conn, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial = %v, %v", conn, err)
			break
		}
		p.Pass() // fails the test if the port is taken
	}
	close(over)
	starts.Wait()
}

func TestProxyFollowsARestart(t *testing.T) {
	s, p := proxied(t)
	c := dial(t, p.Addr())
	c.send("PING")
	c.want("+PONG")
	s.Kill()
	c.wantEnd()
	c = dial(t, p.Addr())
	c.send("PING")
	c.wantEnd()
	s.Restart()
	c = dial(t, p.Addr())
	c.send("PING")
	c.want("+PONG")
}

func TestProxyAwaitGivesUp(t *testing.T) {
	t.Parallel()
	text := failing(t, func(tb testing.TB) {
		p := testserver.NewProxy(tb, "127.0.0.1:1")
		p.LimitAwait(time.Millisecond)
		p.Await(func(testserver.Counts) bool { return false })
	})
	if !strings.Contains(text, "still waiting") {
		t.Errorf("failed with %q", text)
	}
}

// Messages are lost; what confirms a subscription, and replies on other connections, are not.
func TestProxyLosesMessages(t *testing.T) {
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		t.Run(hello, func(t *testing.T) {
			s, p := proxied(t)
			p.Set(testserver.Fault{Mode: testserver.LoseMessages})
			listener, other := dial(t, p.Addr()), dial(t, p.Addr())
			kind := map[string]string{"HELLO 2": "*3", "HELLO 3": ">3"}[hello]
			listener.send(hello, "PING")
			for line := ""; line != "+PONG\r\n"; {
				line, _ = listener.br.ReadString('\n')
			}
			listener.send("SUBSCRIBE ch")
			listener.want(kind, "$9", "subscribe", "$2", "ch", ":1")
			if n := s.MustDo("PUBLISH", "ch", "lost"); n != "1" {
				t.Fatalf("PUBLISH reached %s", n)
			}
			p.Await(func(c testserver.Counts) bool { return c.Lost == 1 })
			other.send("SET k v", "GET k")
			other.want("+OK", "$1", "v")
			p.Pass()
			s.MustDo("PUBLISH", "ch", "m")
			listener.want(kind, "$7", "message", "$2", "ch", "$1", "m")
		})
	}
}
