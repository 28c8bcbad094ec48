package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// A ReplyError is an error that the server answered, such as "WRONGTYPE Operation against a key …".
type ReplyError string

// Error returns the server's words.
func (e ReplyError) Error() string { return string(e) }

var errNotRESP = errors.New("not RESP")

// longest is Redis's own limit on a string, by default; no array is longer either.
const longest = 512 << 20

// A respReader reads RESP2 and RESP3 values, requests included (they are arrays), and keeps the
// bytes they were made of.
type respReader struct {
	br  *bufio.Reader
	raw []byte // of the value being read
}

// next reads one value, and returns it with its bytes, which are the caller's.
func (r *respReader) next() (value any, frame []byte, err error) {
	r.raw = nil
	value, err = r.value()
	return value, r.raw, err
}

// value reads one value: string, int64, nil, ReplyError, or []any for every aggregate (a map has
// its keys and values in turn). Doubles, big numbers and booleans are their text.
func (r *respReader) value() (any, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+', ',', '(', '#':
		return text, nil
	case '-':
		return ReplyError(text), nil
	case '_':
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || kind != ':' && n > longest {
		return nil, fmt.Errorf("%w: %q", errNotRESP, line)
	}
	switch kind {
	case ':':
		return n, nil
	case '$', '=', '!':
		return r.bulk(kind, n)
	case '*', '~', '>':
		return r.list(n)
	case '%':
		return r.list(2 * n)
	case '|': // attributes come before the value that they are about
		if _, err := r.list(2 * n); err != nil {
			return nil, err
		}
		return r.value()
	}
	return nil, fmt.Errorf("%w: %q", errNotRESP, line)
}

func (r *respReader) line() (string, error) {
	b, err := r.br.ReadBytes('\n')
	r.raw = append(r.raw, b...)
	if err != nil {
		return "", err
	}
	if len(b) < 3 || b[len(b)-2] != '\r' {
		return "", fmt.Errorf("%w: %q", errNotRESP, b)
	}
	return string(b[:len(b)-2]), nil
}

func (r *respReader) bulk(kind byte, n int64) (any, error) {
	if n < 0 {
		return nil, nil
	}
	start := len(r.raw)
	r.raw = append(r.raw, make([]byte, n+2)...)
	if _, err := io.ReadFull(r.br, r.raw[start:]); err != nil {
		return nil, err
	}
	text := string(r.raw[start : start+int(n)])
	if kind == '!' {
		return ReplyError(text), nil
	}
	return text, nil
}

func (r *respReader) list(n int64) (any, error) {
	if n < 0 {
		return nil, nil
	}
	items := make([]any, 0, min(n, 64))
	for range n {
		item, err := r.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// request encodes a command.
func request(args []string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}
