package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// A Conn is the plainest client that can be: what it measures is the server and the network, and
// nothing else.
type Conn struct {
	c net.Conn
	r *bufio.Reader
	w []byte
}

// Dial connects.
func Dial(addr string) (*Conn, error) {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{c: c, r: bufio.NewReader(c)}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Do sends a command and returns its reply as text; of an array, the elements by line.
func (c *Conn) Do(words ...string) (string, error) {
	if err := c.Send(words...); err != nil {
		return "", err
	}
	return c.Receive()
}

// Send sends a command.
func (c *Conn) Send(words ...string) error {
	c.w = append(c.w[:0], '*')
	c.w = append(strconv.AppendInt(c.w, int64(len(words)), 10), "\r\n"...)
	for _, word := range words {
		c.w = append(c.w, '$')
		c.w = append(strconv.AppendInt(c.w, int64(len(word)), 10), "\r\n"...)
		c.w = append(append(c.w, word...), "\r\n"...)
	}
	_, err := c.c.Write(c.w)
	return err
}

// Receive reads a reply.
func (c *Conn) Receive() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("server: an empty reply")
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	case '$':
		return c.bulk(rest)
	case '*':
		n, err := strconv.Atoi(rest)
		var all []string
		for range n {
			one, err := c.Receive()
			if err != nil {
				return "", err
			}
			all = append(all, one)
		}
		return strings.Join(all, "\n"), err
	default:
		return "", fmt.Errorf("server: a reply of kind %q", kind)
	}
}

func (c *Conn) bulk(size string) (string, error) {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 {
		return "", err
	}
	buf := make([]byte, n+2)
	for read := 0; read < len(buf); {
		m, err := c.r.Read(buf[read:])
		if err != nil {
			return "", err
		}
		read += m
	}
	return string(buf[:n]), nil
}
