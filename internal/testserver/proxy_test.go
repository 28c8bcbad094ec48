package testserver_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestProxyPasses(t *testing.T) {
	s, p := proxied(t)
	c := dial(t, p.Addr())
	c.send("SET k v", "GET k", "GET none")
	c.want("+OK", "$1", "v", "$-1")
	big := strings.Repeat("x", 1<<20)
	c.send("SET big " + big)
	c.want("+OK")
	if got := s.MustDo("STRLEN", "big"); got != "1048576" {
		t.Errorf("STRLEN = %s", got)
	}
	_ = c.conn.Close()
	p.Await(func(c testserver.Counts) bool { return c.Open == 0 })
	want := testserver.Counts{Conns: 1, Requests: 4, Replies: 4, Forwarded: 4}
	if got := p.Counts(); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

func TestProxyPassesWhatIsNotRESP(t *testing.T) {
	_, p := proxied(t)
	c := dial(t, p.Addr())
	fmt.Fprint(c.conn, "PING\r\nECHO hi\r\n") // inline commands
	c.want("+PONG", "$2", "hi")
}

func TestProxyHoldsAndDeliversLate(t *testing.T) {
	s, p := proxied(t)
	listener := dial(t, p.Addr())
	listener.send("SUBSCRIBE ch")
	listener.want("*3", "$9", "subscribe", "$2", "ch", ":1")
	p.Set(testserver.Fault{Mode: testserver.Hold})
	c := dial(t, p.Addr())
	c.send("SET k v")
	p.Await(func(c testserver.Counts) bool { return c.Held == 1 })
	s.MustDo("PUBLISH", "ch", "m")
	p.Await(func(c testserver.Counts) bool { return c.Held == 2 })
	listener.wantSilence()
	_ = c.conn.Close() // the client gives up; its request is on the wire all the same
	if got, err := s.Do("GET", "k"); got != nil || err != nil {
		t.Errorf("while held GET = %v, %v", got, err)
	}
	p.Pass()
	p.Await(func(c testserver.Counts) bool { return c.Open == 1 })
	if got := s.MustDo("GET", "k"); got != "v" {
		t.Errorf("after release GET = %q", got)
	}
	listener.want("*3", "$7", "message", "$2", "ch", "$1", "m")
}

func TestProxyHeldRequestIsOvertaken(t *testing.T) {
	s, p := proxied(t)
	p.Set(testserver.Fault{Mode: testserver.Hold, Match: testserver.Containing("RPUSH", "acquire")})
	slow, fast := dial(t, p.Addr()), dial(t, p.Addr())
	slow.send("RPUSH k acquire")
	p.Await(func(c testserver.Counts) bool { return c.Held == 1 })
	fast.send("RPUSH k release")
	fast.want(":1")
	p.Pass()
	slow.want(":2")
	if got := s.MustDo("LRANGE", "k", "0", "-1"); got != "[release acquire]" {
		t.Errorf("order %s", got)
	}
}

func TestProxyHeldRequestMeetsTheNextFault(t *testing.T) {
	s, p := proxied(t)
	p.Set(testserver.Fault{Mode: testserver.Hold, Next: 1})
	c := dial(t, p.Addr())
	c.send("SET k v")
	p.Await(func(c testserver.Counts) bool { return c.Held == 1 })
	p.Set(testserver.Fault{Mode: testserver.CutBeforeRequest})
	c.wantEnd()
	if got, _ := s.Do("GET", "k"); got != nil {
		t.Errorf("GET = %v", got)
	}
}

func TestProxyHoldsReplies(t *testing.T) {
	s, p := proxied(t)
	p.Set(testserver.Fault{Mode: testserver.HoldReply, Match: testserver.Containing("INCR")})
	c := dial(t, p.Addr())
	c.send("SET k 1", "INCR k", "GET k")
	c.want("+OK")
	p.Await(func(c testserver.Counts) bool { return c.Held == 1 })
	if got := s.MustDo("GET", "k"); got != "2" {
		t.Errorf("while its reply is held the request is not executed: %s", got)
	}
	c.wantSilence()
	p.Pass()
	c.want(":2", "$1", "2")
}

func TestProxyHoldsTheConfirmationOfASubscription(t *testing.T) {
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		t.Run(hello, func(t *testing.T) {
			_, p := proxied(t)
			c := dial(t, p.Addr())
			c.send(hello, "PING")
			for line := ""; line != "+PONG\r\n"; {
				line, _ = c.br.ReadString('\n')
			}
			p.Set(testserver.Fault{
				Mode:  testserver.HoldReply,
				Match: testserver.Containing("SUBSCRIBE"),
			})
			c.send("PING")
			_, _ = c.br.ReadString('\n')
			c.send("SUBSCRIBE ch")
			p.Await(func(c testserver.Counts) bool { return c.Held == 1 })
			c.wantSilence()
			p.Pass()
			kind := map[string]string{"HELLO 2": "*3", "HELLO 3": ">3"}[hello]
			c.want(kind, "$9", "subscribe")
		})
	}
}

func TestProxyFirstFaultThatAppliesDecides(t *testing.T) {
	_, p := proxied(t)
	p.Set(
		testserver.Fault{Mode: testserver.Pass, Match: testserver.Containing("spared")},
		testserver.Fault{Mode: testserver.HoldReply, Match: testserver.Containing("INCR"), Next: 1},
		testserver.Fault{Mode: testserver.CutBeforeRequest, Match: testserver.Containing("INCR")},
	)
	a, b, c := dial(t, p.Addr()), dial(t, p.Addr()), dial(t, p.Addr())
	a.send("INCR spared")
	a.want(":1")
	b.send("INCR k")
	p.Await(func(c testserver.Counts) bool { return c.Held == 1 })
	c.send("INCR k")
	c.wantEnd()
	p.Pass()
	b.want(":1")
}

func TestProxyPassesTLS(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.WithTLS())
	p := testserver.NewProxy(t, s.Addr())
	conn, err := tls.Dial("tcp", p.Addr(), s.TLS.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "PING\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "+PONG\r\n" {
		t.Errorf("read %q, %v", line, err)
	}
	p.Set(testserver.Fault{Mode: testserver.ExecuteThenCut, Next: 1})
	fmt.Fprint(conn, "INCR k\r\n")
	if n, err := conn.Read(make([]byte, 16)); err == nil {
		t.Errorf("read %d bytes of a reply that was to be lost", n)
	}
	if got := s.MustDo("GET", "k"); got != "1" {
		t.Errorf("GET = %s", got)
	}
}
