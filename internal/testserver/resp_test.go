package testserver

import (
	"bufio"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestReadRESP(t *testing.T) {
	for text, want := range map[string]any{
		"+OK\r\n":                                "OK",
		"-ERR no\r\n":                            ReplyError("ERR no"),
		":-12\r\n":                               int64(-12),
		":4611686018427387904\r\n":               int64(1 << 62),
		"$5\r\na\r\nbc\r\n":                      "a\r\nbc",
		"$0\r\n\r\n":                             "",
		"$-1\r\n":                                nil,
		"*-1\r\n":                                nil,
		"_\r\n":                                  nil,
		"#t\r\n":                                 "t",
		",1.5\r\n":                               "1.5",
		"(123\r\n":                               "123",
		"!6\r\nERR no\r\n":                       ReplyError("ERR no"),
		"=6\r\ntxt:ab\r\n":                       "txt:ab",
		"*2\r\n*1\r\n:1\r\n$-1\r\n":              []any{[]any{int64(1)}, nil},
		"%1\r\n+k\r\n~2\r\n:1\r\n:2\r\n":         []any{"k", []any{int64(1), int64(2)}},
		">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n": []any{"invalidate", []any{"k"}},
		"|1\r\n+ttl\r\n:5\r\n+OK\r\n":            "OK",
	} {
		r := respReader{br: bufio.NewReader(strings.NewReader(text + "+next\r\n"))}
		got, raw, err := r.next()
		if !reflect.DeepEqual(got, want) || string(raw) != text || err != nil {
			t.Errorf("%q is %#v from %q, %v; want %#v", text, got, raw, err, want)
		}
		if got, _, err := r.next(); got != "next" || err != nil {
			t.Errorf("after %q comes %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]error{
		"":                    io.EOF,
		"+OK":                 io.EOF,
		"$5\r\nab":            io.ErrUnexpectedEOF,
		"*2\r\n:1\r\n":        io.EOF,
		"\n":                  errNotRESP,
		"+OK\n":               errNotRESP,
		"$x\r\n":              errNotRESP,
		"$99999999999\r\n":    errNotRESP,
		"HTTP/1.1 200\r\n":    errNotRESP,
		"*1\r\n?\r\n":         errNotRESP,
		"*99999999999\r\n":    errNotRESP,
		"%1\r\n+k\r\nbad\r\n": errNotRESP,
	} {
		r := respReader{br: bufio.NewReader(strings.NewReader(text))}
		if got, _, err := r.next(); !errors.Is(err, want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
}
