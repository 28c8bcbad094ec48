package testserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// client is a raw connection: what it sends and when is up to the test.
type client struct {
	t    *testing.T
	conn net.Conn
	br   *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return &client{t, conn, bufio.NewReader(conn)}
}

// send writes commands, given as words, in one write.
func (c *client) send(commands ...string) {
	c.t.Helper()
	var b strings.Builder
	for _, command := range commands {
		words := strings.Fields(command)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		c.t.Fatal(err)
	}
}

// want reads lines of replies.
func (c *client) want(lines ...string) {
	c.t.Helper()
	for _, want := range lines {
		got, err := c.br.ReadString('\n')
		if got = strings.TrimSuffix(got, "\r\n"); got != want || err != nil {
			c.t.Fatalf("read %q, %v; want %q", got, err, want)
		}
	}
}

// wantEnd expects the connection to be closed, and no byte before that.
func (c *client) wantEnd() {
	c.t.Helper()
	if _, err := c.br.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("connection was not closed: %v", err)
	}
}

// wantSilence expects no byte for a moment, and the connection to stay.
func (c *client) wantSilence() {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if b, err := c.br.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("read %q, %v; want silence", b, err)
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
}

func proxied(t *testing.T) (*testserver.Server, *testserver.Proxy) {
	t.Helper()
	t.Parallel()
	s := testserver.Redis(t)
	return s, testserver.NewProxy(t, s.Addr())
}

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
			p.Set(testserver.Fault{Mode: testserver.HoldReply, Match: testserver.Containing("SUBSCRIBE")})
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
	p.Set(testserver.Fault{Mode: testserver.ExecuteThenCut, Match: testserver.Containing("INCR", "k"), Next: 2})
	for range 2 {
		c := dial(t, p.Addr())
		c.send("PING", "INCR k") // the reply of an earlier request in the pipeline is not the one that is lost
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
	for name, mode := range map[string]testserver.Mode{"request": testserver.Delay, "reply": testserver.DelayReply} {
		t.Run(name, func(t *testing.T) {
			s, p := proxied(t)
			p.Set(testserver.Fault{Mode: mode, Match: testserver.Containing("INCR"), Delay: d})
			c := dial(t, p.Addr())
			begin := time.Now()
			c.send("INCR k", "INCR k", "INCR k")
			p.Await(func(c testserver.Counts) bool { return c.Delayed > 0 })
			executed := s.MustDo("EXISTS", "k") == "1"
			if early := time.Since(begin) < d; early && executed != (mode == testserver.DelayReply) {
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
	c.send("SET k v") // a stream that lost a part cannot go on, or replies would meet the wrong requests
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
