package testserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
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
