package script

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

func TestDecodeAcquire(t *testing.T) {
	c := backend.Claim{TTL: 1500 * time.Microsecond}
	g, err := DecodeAcquire([]any{int64(1), int64(7), int64(3)}, c)
	want := backend.Grant{Token: 7, TTL: c.TTL, Reserved: 3}
	if err != nil || g.Token != want.Token || g.TTL != want.TTL || g.Reserved != want.Reserved {
		t.Errorf("grant %+v, %v; want %+v", g, err, want)
	}
	if g, err = DecodeAcquire([]any{int64(1), int64(7), int64(3), int64(6)}, c); err != nil ||
		g.Token != 7 || g.TookOver != 6 {
		t.Errorf("grant %+v, %v; want token 7 after 6 ran out", g, err)
	}
	_, err = DecodeAcquire([]any{
		int64(2), int64(250), `{"service":"shop","pid":3}`, int64(4),
		int64(9),
	}, c)
	var held *backend.HeldError
	if !errors.As(err, &held) || held.RetryAfter != 250*time.Millisecond ||
		held.Holder.Service != "shop" || held.Holder.PID != 3 ||
		held.Position != 4 || held.Token != 9 {
		t.Errorf("held: %#v", err)
	}
	for name, test := range map[string]struct {
		reply any
		want  error
	}{
		"dead":            {[]any{int64(3)}, backend.ErrLost},
		"foreign":         {[]any{int64(4), "a string"}, backend.ErrForeign},
		"foreign, no why": {[]any{int64(4)}, backend.ErrForeign},
		"held, bad meta": {
			[]any{int64(2), int64(1), "{{", int64(0), int64(1)},
			backend.ErrHeld,
		},
		"held, for ever": {
			[]any{int64(2), int64(1 << 52), "", int64(0), int64(1)},
			backend.ErrHeld,
		},
		"held, not to ask":    {[]any{int64(2), int64(0), "", int64(2), int64(1)}, backend.ErrHeld},
		"held, negative":      {[]any{int64(2), int64(-1), "", int64(2), int64(1)}, nil},
		"held, cut":           {[]any{int64(2), int64(1), ""}, nil},
		"mismatch":            {[]any{int64(6)}, backend.ErrMismatch},
		"no token":            {[]any{int64(1), int64(0), int64(1)}, nil},
		"token below zero":    {[]any{int64(1), int64(-1), int64(1)}, nil},
		"token as text":       {[]any{int64(1), "7", int64(1)}, nil},
		"reserved too much":   {[]any{int64(1), int64(7), int64(1025)}, nil},
		"reserved nothing":    {[]any{int64(1), int64(7), int64(0)}, nil},
		"took over itself":    {[]any{int64(1), int64(7), int64(7), int64(7)}, nil},
		"too much":            {[]any{int64(1), int64(7), int64(1), int64(6), int64(1)}, nil},
		"unknown code":        {[]any{int64(10), int64(7)}, nil},
		"early":               {[]any{int64(9), int64(7)}, backend.ErrEarly},
		"early, for no time":  {[]any{int64(9), int64(0)}, backend.ErrEarly},
		"early, for a text":   {[]any{int64(9), "x"}, nil},
		"state not asked for": {[]any{int64(1), int64(7), int64(1), "+x"}, nil},
		"empty":               {[]any{}, nil},
		"nothing":             {nil, nil},
		"not an array":        {"OK", nil},
	} {
		g, err := DecodeAcquire(test.reply, c)
		if err == nil || g.Token != 0 {
			t.Errorf("%s: granted %+v", name, g)
		}
		if test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if test.want == nil && backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%s: %v is a definite answer", name, err)
		}
	}
}

// released is DecodeRelease, for a test that is about the answer alone.
func released(reply any) error {
	_, err := DecodeRelease(reply)
	return err
}

func TestDecodeRenewAndRelease(t *testing.T) {
	for name, test := range map[string]struct {
		reply          any
		renew, release error // nil: yes
	}{
		"yes":     {[]any{int64(1)}, nil, nil},
		"lost":    {[]any{int64(3)}, backend.ErrLost, backend.ErrLost},
		"foreign": {[]any{int64(4), "x"}, backend.ErrForeign, backend.ErrForeign},
		"expired": {[]any{int64(5)}, errUnknown, backend.ErrLost},
		"held":    {[]any{int64(2), int64(1), ""}, errUnknown, errUnknown},
		"text":    {"1", errUnknown, errUnknown},
	} {
		for verb, got := range map[string][2]error{
			"renew":   {DecodeRenew(test.reply), test.renew},
			"release": {released(test.reply), test.release},
		} {
			err, want := got[0], got[1]
			switch {
			case want == nil && err != nil, want != nil && err == nil:
				t.Errorf("%s of %s: %v, want %v", verb, name, err, want)
			case errors.Is(want, errUnknown) && backend.AnswerOf(err) != backend.Unknown,
				want != nil && !errors.Is(want, errUnknown) && !errors.Is(err, want):
				t.Errorf("%s of %s: %v, want %v", verb, name, err, want)
			}
		}
	}
}

var errUnknown = errors.New("no answer")

func TestDecodeInspect(t *testing.T) {
	l, err := NewLayout("", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	const now, later, past = "1000", "2500", "999" // ms
	fields := func(all ...string) string { return "#" + strings.Join(all, "\n") }
	hash := func(more ...string) string {
		return fields(append([]string{"v", "h2", "f", "9"}, more...)...)
	}
	group := func(mode, holders, head, tail, waiting string) string {
		return mode + " 0 " + holders + " 0 0 0 0 " + head + " " + tail + " " + waiting + " 0"
	}
	place := func(ends, form string) string {
		return ends + " 60000 client " + form + " 15000 c 1 {\"pid\":7}"
	}
	heavy := hash("g", "p 9 2*5 0 0 0 0 1 1 1 1", "k:1", later+" 8*4  a {}", "k:2",
		later+" 7  b {}",
		"q:1", place(later, "p,9*5,"))
	readers := hash("g", group("s", "2", "4", "8", "2"), "k:1", later+" 8  a%20b {\"host\":\"h\"}",
		"k:2", past+" 7 o i ",
		"q:8", place(later, "!p,2,"), "q:5", place(later, "+r,0,me"), "q:6", place(past, "x"),
		"q:9", "of old")
	inspect := func(stored ...string) ([]Inspected, error) {
		reply := []any{int64(1), "1", "999"}
		for _, s := range stored {
			reply = append(reply, s)
		}
		return l.DecodeInspect(reply, len(stored))
	}
	all, err := inspect(readers, "", "$1 h2 9", "$2000 h2 9 500 me 2 {} ", "$500 h2 9 500 me 1 ",
		hash("o", "me", "x", later), hash("o", "me", "x", now), heavy)
	if err != nil || len(all) != 8 {
		t.Fatalf("%+v, %v", all, err)
	}
	a := backend.Holder{
		Owner: "a b", ID: "a b", Mode: backend.Shared, Token: 8, TTL: 1500 * time.Millisecond,
		Meta: backend.Meta{Host: "h"},
	}
	me := backend.Holder{Owner: "me", ID: "me", Token: 8, TTL: 1500 * time.Millisecond}
	second := me
	second.Token = 9
	permit := func(id string, token uint64, weight int) backend.Holder {
		return backend.Holder{
			Owner: id, ID: id, Mode: backend.Permit, Token: token,
			TTL: 1500 * time.Millisecond, Weight: weight,
		}
	}
	waits := []backend.Waiter{
		{Owner: "me", Meta: backend.Meta{PID: 7}},
		{Owner: "c", Mode: backend.Permit, Meta: backend.Meta{PID: 7}},
	}
	for i, want := range []backend.State{
		{Token: 9, Holders: []backend.Holder{a}, Waiters: waits},
		{},
		{Token: 9},
		{Token: 9, Holders: []backend.Holder{me}},
		{Token: 9},
		{Token: 9, Holders: []backend.Holder{second}},
		{Token: 9},
		{
			Token: 9, Holders: []backend.Holder{permit("a", 8, 4), permit("b", 7, 0)},
			Waiters: []backend.Waiter{{
				Owner: "c", Mode: backend.Permit, Meta: backend.Meta{PID: 7},
				Weight: 5,
			}},
		},
	} {
		if all[i].Err != nil || !reflect.DeepEqual(all[i].State, want) {
			t.Errorf("lock %d is read as %+v, want %+v", i, all[i], want)
		}
	}
	for _, stored := range []string{
		"?", "$5 x", "$5 h3 9", "$-1 h2 9", "$10 h2 9 5 me 10 ", "#", "#a", fields("a", "b"),
		fields("v", "h3", "f", "9"), fields("v", "h2"), fields("v", "h2", "f", "-9"),
		hash("o", "me"), hash("o", "", "x", later), hash("o", "me", "x", later, "b", "10"),
		hash("o", "me", "x", later, "g", group("s", "1", "1", "0", "0")), hash("g", "x"),
		hash("g", group("s", "999999", "1", "0", "0")),
		hash("g", group("s", "1", "1", "0", "0"), "k:1", "soon 8 o i "),
		hash("g", group("s", "1", "1", "0", "0"), "k:1", later+" 8 o"),
		hash("g", group("-", "0", "1", "1", "1"), "q:1", "x"),
		hash("g", group("-", "0", "1", "1", "1"), "q:1", place(later, "p,2")),
		hash("g", group("-", "0", "1", "1", "1"), "q:1", place("soon", "x")),
		hash("g", group("-", "0", "1", "1", "1"), "q:1", place(later, "p,9*10,")),
		hash("g", "p 9 1*1 0 0 0 0 1 0 0 0", "k:1", later+" 8  a {}"),
		hash("g", "p 9 1*10 0 0 0 0 1 0 0 0", "k:1", later+" 8*10  a {}"),
		hash("g", "s 0 1*2 0 0 0 0 1 0 0 0", "k:1", later+" 8*2  a {}"),
		hash("g", group("s", "1", "1", "0", "0"), "k:1", later+" 8*1  a {}"),
	} {
		if all, err := inspect(stored, readers); err != nil || len(all) != 2 ||
			!errors.Is(all[0].Err, backend.ErrForeign) ||
			!reflect.DeepEqual(all[0].State, backend.State{}) || all[1].Err != nil {
			t.Errorf("%q is read as %+v, %v", stored, all, err)
		}
	}
	for _, reply := range []any{
		nil,
		"x",
		[]any{},
		[]any{int64(2)},
		[]any{int64(1), "1", "999"},
		[]any{int64(1), "1", "x", ""},
		[]any{int64(1), "1", "999", nil},
		[]any{int64(1), "1", "999", "", ""},
	} {
		if all, err := l.DecodeInspect(reply, 1); err == nil ||
			backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%v is read as %+v, %v", reply, all, err)
		}
	}
}

func TestDecodeInspectOfDialect(t *testing.T) {
	l, err := Dialect("", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	held := []any{int64(1), int64(9), "a%20b", int64(8), int64(0), `{"host":"h"}`}
	all, err := l.DecodeInspect(held, 1)
	want := backend.State{Token: 9, Holders: []backend.Holder{
		{Owner: "a b", ID: "a b", Token: 8, TTL: time.Millisecond, Meta: backend.Meta{Host: "h"}},
	}}
	if err != nil || len(all) != 1 || all[0].Err != nil || !reflect.DeepEqual(all[0].State, want) {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := l.DecodeInspect([]any{int64(1), int64(9)}, 1); err != nil || len(all) != 1 ||
		!reflect.DeepEqual(all[0].State, backend.State{Token: 9}) {
		t.Errorf("free: %+v, %v", all, err)
	}
	if _, err := l.DecodeInspect([]any{int64(4), "x"}, 1); !errors.Is(err, backend.ErrForeign) {
		t.Errorf("foreign: %v", err)
	}
	for i := range held {
		bad := slices.Clone(held)
		bad[i] = nil
		if all, err := l.DecodeInspect(bad, 1); err == nil {
			t.Errorf("%v is read as %+v", bad, all)
		}
	}
}

func TestMeta(t *testing.T) {
	since := time.Date(2025, 11, 21, 10, 0, 0, 5, time.FixedZone("", 3600))
	for _, m := range []backend.Meta{
		{},
		{Service: "ünï\"\n", Host: "h", PID: 1, Traceparent: "00-x", Since: since},
		{Service: "s"},
		{Host: "h"},
		{PID: 1},
		{Traceparent: "00-x"},
		{Since: since},
		{Traceparent: "a\"\\\n<é", Since: since},
		{PID: 1, Since: since},
		{PID: 1, Traceparent: "00-y"},
	} {
		text := string(appendMeta(nil, &m))
		got := decodeMeta(text)
		if !got.Since.Equal(m.Since) {
			t.Errorf("%+v became %+v", m, got)
		}
		if got.Since = m.Since; got != m || m != (backend.Meta{}) && !json.Valid([]byte(text)) {
			t.Errorf("%+v became %+v, by way of %s", m, got, text)
		}
	}
	strange := backend.Meta{Service: "s", Since: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)}
	if got := decodeMeta(string(appendMeta(nil, &strange))); got.Service != "s" {
		t.Errorf("a year without four digits loses all: %+v", got)
	}
}

// FuzzReply: whatever a server answers, nothing panics, and only {1, token > 0} is a grant.
func FuzzReply(f *testing.F) {
	f.Add("i1 i7 i1")
	f.Add("i2 i5 s{}")
	f.Add("i3")
	f.Add("i4 swhy")
	f.Add("i1 s i0 i3 s")
	f.Add("n a x")
	f.Fuzz(func(t *testing.T, text string) {
		reply := replyOf(text)
		g, err := DecodeAcquire(reply, backend.Claim{TTL: time.Second})
		r, _ := reply.([]any)
		token := int64(0)
		if len(r) == 3 && r[0] == int64(1) {
			reserved, _ := r[2].(int64)
			if token, _ = r[1].(int64); reserved < 1 || reserved > backend.MaxReserve {
				token = 0
			}
		}
		if (err == nil) != (token > 0) || err == nil && g.Token != uint64(token) {
			t.Fatalf("%v is decoded as %+v, %v", reply, g, err)
		}
		if err := DecodeRenew(reply); err == nil && (len(r) != 1 || r[0] != int64(1)) {
			t.Fatalf("%v is decoded as renewed", reply)
		}
		told, err := DecodeRelease(reply)
		if err == nil && (len(r) != 1 && len(r) != 3 || r[0] != int64(1)) ||
			(told.Waiting > 0) != (err == nil && len(r) == 3) {
			t.Fatalf("%v is decoded as %+v, %v", reply, told, err)
		}
		_, _ = Layout{}.DecodeInspect(reply, 2)
		_, _ = Layout{kind: &dialect{}}.DecodeInspect(reply, 1)
		_, _ = DecodeProbe(reply)
		_, _, _ = DecodeHanded(text)
	})
}

// replyOf makes a reply of words: i7 is a number, sx a string, n nil, a an array in the array, and
// !x no array at all.
func replyOf(text string) any {
	if rest, ok := strings.CutPrefix(text, "!"); ok {
		return rest
	}
	var r []any
	for _, word := range strings.Split(text, " ") {
		kind, rest, _ := cutByte(word)
		switch kind {
		case 'i':
			n := int64(0)
			for _, c := range []byte(rest) {
				n = n*10 + int64(c) - '0'
			}
			r = append(r, n)
		case 's':
			r = append(r, rest)
		case 'n':
			r = append(r, nil)
		case 'a':
			r = append(r, []any{rest})
		}
	}
	return r
}

func cutByte(s string) (byte, string, bool) {
	if s == "" {
		return 0, "", false
	}
	return s[0], s[1:], true
}
