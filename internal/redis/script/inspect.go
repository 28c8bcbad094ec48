package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Inspected is one lock that [Scripts.Inspect] tells of.
type Inspected struct {
	State backend.State
	Err   error // [backend.ErrForeign] for what is no lock, or a damaged one
}

// DecodeInspect reads the reply to [Scripts.Inspect] for so many locks: of the first ones, one at
// least.
func (l Layout) DecodeInspect(reply any, locks int) ([]Inspected, error) {
	r, code := open(reply)
	switch {
	case code != codeOK:
		return nil, no(r, code, reply)
	case l.dialect:
		s, ok := decodeOfDialect(r)
		if !ok {
			return nil, unexpected(reply)
		}
		return []Inspected{{State: s}}, nil
	case len(r) < 4 || len(r) > 3+locks:
		return nil, unexpected(reply)
	}
	seconds, ok1 := numberOf(r[1])
	us, ok2 := numberOf(r[2])
	if !ok1 || !ok2 {
		return nil, unexpected(reply)
	}
	all := make([]Inspected, 0, locks)
	for _, stored := range r[3:] {
		text, ok := stored.(string)
		if !ok {
			return nil, unexpected(reply)
		}
		s, err := decodeLock(text, seconds*1000+us/1000)
		if err != nil {
			s = backend.State{}
		}
		all = append(all, Inspected{s, err})
	}
	return all, nil
}

// decodeOfDialect reads what the string dialect tells: the last token, and who holds.
func decodeOfDialect(r []any) (s backend.State, ok bool) {
	if len(r) != 2 && len(r) != 6 {
		return s, false
	}
	token, ok := r[1].(int64)
	s.Token = uint64(token)
	if len(r) == 2 || !ok || token < 0 {
		return s, ok && token >= 0
	}
	owner, ok1 := r[2].(string)
	token, ok2 := r[3].(int64)
	left, ok3 := r[4].(int64)
	meta, ok4 := r[5].(string)
	if !ok1 || !ok2 || !ok3 || !ok4 || token < 0 || left < 0 {
		return s, false
	}
	s.Holders = []backend.Holder{holder(owner, owner, backend.Exclusive, uint64(token), left, meta)}
	return s, true
}

// holder is a hold as the store has it, with left ms of its lease.
func holder(owner, id string, mode backend.Mode, token uint64, left int64, meta string) backend.Holder {
	return backend.Holder{
		Owner: plain(owner), ID: plain(id), Mode: mode, Token: token,
		TTL: max(duration(left), time.Millisecond), Meta: decodeMeta(meta),
	}
}

// decodeLock reads what is stored of a lock as lib/lock.lua does, at now in ms of the store's
// clock. It works on what is there and never counts from one number to another: a queue has gaps,
// and damage may have made them as long as you like.
func decodeLock(stored string, now int64) (backend.State, error) {
	if stored == "" {
		return backend.State{}, nil
	}
	switch kind, rest := stored[0], stored[1:]; kind {
	case '$':
		return decodeShort(rest)
	case '#':
		return decodeHash(strings.Split(rest, "\n"), now)
	}
	return backend.State{}, foreign("not a lock")
}

// decodeHash reads a lock of fields, each of which is followed by its value.
func decodeHash(lines []string, now int64) (backend.State, error) {
	fields := make(map[string]string, len(lines)/2)
	for i := 0; i+1 < len(lines); i += 2 {
		fields[lines[i]] = lines[i+1]
	}
	switch version, ok := fields["v"]; {
	case !ok:
		return backend.State{}, foreign("a hash without a layout version")
	case version != "h2":
		return backend.State{}, foreign("a layout version that is not known here")
	}
	counter, ok := number(fields["f"])
	if !ok {
		return backend.State{}, damaged("fields")
	}
	for z := fields["z"]; z != ""; {
		var tomb string
		tomb, z, ok = strings.Cut(z, ";")
		ends, id, ok2 := strings.Cut(tomb, " ")
		if _, ok3 := number(ends); !ok || !ok2 || !ok3 || id == "" || strings.Contains(id, " ") {
			return backend.State{}, damaged("tombstones")
		}
	}
	s := backend.State{Token: uint64(counter)}
	g, ok := readGroup(fields["g"])
	owner, owned := fields["o"]
	if !ok || owned && g.holders > 0 {
		return s, damaged("group")
	}
	if owned {
		expires, ok := number(fields["x"])
		if !ok || owner == "" {
			return s, damaged("fields")
		}
		first, ok := firstToken(s.Token, fields["b"])
		if !ok {
			return s, damaged("tokens")
		}
		if expires > now {
			h := holder(owner, owner, backend.Exclusive, first, expires-now, fields["m"])
			s.Holders = append(s.Holders, h)
		}
	}
	if g.holders > int64(len(fields)) {
		return s, damaged("holders")
	}
	for n := range g.holders {
		// ends token owner id meta
		slot := strings.SplitN(fields["k:"+strconv.FormatInt(n+1, 10)], " ", 5)
		if len(slot) != 5 || slot[3] == "" {
			return s, damaged("holders")
		}
		ends, ok1 := number(slot[0])
		token, weight, ok2 := weighted(slot[1])
		if !ok1 || !ok2 {
			return s, damaged("holders")
		}
		if slot[2] == "" {
			slot[2] = slot[3]
		}
		if ends > now {
			h := holder(slot[2], slot[3], modeFrom(g.mode), uint64(token), ends-now, slot[4])
			h.Weight = weight
			s.Holders = append(s.Holders, h)
		}
	}
	var places []int64
	for name := range fields {
		digits, isPlace := strings.CutPrefix(name, "q:")
		if n, ok := number(digits); isPlace && ok && n >= g.head && n <= g.tail {
			places = append(places, n)
		}
	}
	slices.Sort(places)
	for _, n := range places {
		w, ends, ok := readPlace(fields["q:"+strconv.FormatInt(n, 10)])
		if !ok {
			return s, damaged("queue")
		}
		if ends > now {
			s.Waiters = append(s.Waiters, w)
		}
	}
	return s, nil
}

// decodeShort reads a lock that is free or has one exclusive holder, behind the ms that its key has
// left to live.
func decodeShort(stored string) (s backend.State, err error) {
	digits, value, _ := strings.Cut(stored, " ")
	left, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return s, unexpected(stored)
	}
	o, ok := Layout{}.ParseOwner(value)
	s.Token = o.Token
	keep := o.Keep.Milliseconds()
	switch {
	case !ok:
		return s, foreign("not a lock, or of a layout version that is not known here")
	case left < 0:
		return s, damaged("counter, or that never ends")
	case o.ID == "" || left <= keep:
		return s, nil
	case o.First == 0:
		return s, damaged("tokens")
	}
	s.Holders = []backend.Holder{holder(o.ID, o.ID, backend.Exclusive, o.First, left-keep, "")}
	s.Holders[0].Meta = o.Meta
	return s, nil
}

// firstToken is the first token of an exclusive hold whose last one is the counter, and which has
// count of them, in digits; without any it has one.
func firstToken(counter uint64, count string) (first uint64, ok bool) {
	if count == "" {
		return counter, true
	}
	n, ok := number(count)
	if !ok || n < 1 || n > backend.MaxReserve || uint64(n) > counter {
		return 0, false
	}
	return counter - uint64(n) + 1, true
}

// A group is that of lib/group.lua, as far as it is to be told.
type group struct {
	mode                string
	holders, head, tail int64
}

// readGroup reads the field g; ok is false for a damaged one.
func readGroup(stored string) (g group, ok bool) {
	if stored == "" {
		return group{mode: "-", head: 1}, true
	}
	words := strings.Split(stored, " ")
	if len(words) != 11 || !oneOf("-spr", words[0]) {
		return g, false
	}
	holders, weight, ok := weighted(words[2])
	if !ok || weight > 0 && words[0] != letterPermit {
		return g, false
	}
	words[2] = strconv.FormatInt(holders, 10)
	var n [11]int64
	for i, word := range words[1:] {
		if n[i+1], ok = number(word); !ok {
			return g, false
		}
	}
	limit, unseen, waiting, permits := n[1], n[4], n[9], n[10]
	if weight > 0 && (int64(weight) <= holders || int64(weight) > limit) {
		return g, false
	}
	g = group{words[0], holders, n[7], n[8]}
	return g, (g.holders == 0) == (g.mode == "-") && g.holders+waiting > 0 && unseen <= g.holders &&
		g.head > 0 && g.tail <= 1e13 && waiting <= g.tail-g.head+1 && permits <= waiting &&
		(limit > 0 || g.mode != letterPermit && permits == 0)
}

// readPlace reads a place of the queue, see lib/queue.lua, and when it ends.
func readPlace(stored string) (w backend.Waiter, ends int64, ok bool) {
	words := strings.SplitN(stored, " ", 8) // ends lease client form keep id reserve meta
	if len(words) != 8 {
		return w, 0, false
	}
	ends, ok = number(words[0])
	mode, owner, id, weight := letterExclusive, "", words[5], 0
	if form := words[3]; form != letterExclusive {
		parts := strings.SplitN(strings.TrimLeft(form, "+!"), ",", 3)
		if len(parts) != 3 || !oneOf("xspr", parts[0]) {
			return w, 0, false
		}
		limit, n, known := weighted(parts[1])
		if !known || int64(n) > limit {
			return w, 0, false
		}
		mode, owner, weight = parts[0], parts[2], n
	}
	if owner == "" {
		owner = id
	}
	w = backend.Waiter{
		Owner: plain(owner), Mode: modeFrom(mode), Meta: decodeMeta(words[7]), Weight: weight,
	}
	return w, ends, ok && id != ""
}

func oneOf(letters, word string) bool {
	return len(word) == 1 && strings.IndexByte(letters, word[0]) >= 0
}

func foreign(why string) error { return fmt.Errorf("%w: %s", backend.ErrForeign, why) }

func damaged(what string) error { return foreign("a lock with damaged " + what) }

// number reads digits that scripts can count with.
func number(digits string) (int64, bool) {
	n, err := strconv.ParseUint(digits, 10, 53)
	return int64(n), err == nil && len(digits) <= 16
}

// weighted reads digits, and '*' and a weight above 1 if it is behind them; 0 without.
func weighted(word string) (n int64, weight int, ok bool) {
	digits, behind, more := strings.Cut(word, "*")
	n, ok = number(digits)
	if !more {
		return n, 0, ok
	}
	sum, known := number(behind)
	return n, int(sum), ok && known && sum > 1
}

// numberOf is number of a text in a reply.
func numberOf(reply any) (int64, bool) {
	digits, _ := reply.(string)
	return number(digits)
}

// plain is a name as the claim had it. One that we did not write is shown as it is.
func plain(name string) string {
	if s, ok := unescape(name); ok {
		return s
	}
	return name
}

func modeFrom(letter string) backend.Mode {
	switch letter {
	case letterShared:
		return backend.Shared
	case letterPermit:
		return backend.Permit
	}
	return backend.Exclusive
}
