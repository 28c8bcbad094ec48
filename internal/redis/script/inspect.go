package script

import (
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// DecodeInspect reads the reply to [Scripts.Inspect].
func DecodeInspect(reply any) (backend.State, error) {
	r, code := open(reply)
	if code != codeOK || len(r) != 4 {
		return backend.State{}, no(r, code, reply)
	}
	token, ok1 := r[1].(int64)
	holders, ok2 := r[2].([]any)
	line, ok3 := r[3].([]any)
	if !ok1 || !ok2 || !ok3 || token < 0 {
		return backend.State{}, unexpected(reply)
	}
	s := backend.State{Token: uint64(token)}
	for _, entry := range holders {
		h, ok := decodeHolder(entry)
		if !ok {
			return backend.State{}, unexpected(reply)
		}
		s.Holders = append(s.Holders, h)
	}
	for _, entry := range line {
		w, ok := decodeWaiter(entry)
		if !ok {
			return backend.State{}, unexpected(reply)
		}
		s.Waiters = append(s.Waiters, w)
	}
	return s, nil
}

func decodeHolder(entry any) (backend.Holder, bool) {
	r, weight, ok := weighed(entry, 7)
	if ok && len(r) == 5 {
		r = append(r, r[0]) // an exclusive hold, whose id is its owner
	}
	if !ok || len(r) != 6 {
		return backend.Holder{}, false
	}
	id, isText := r[5].(string)
	owner, ok1 := r[0].(string)
	letter, ok2 := r[1].(string)
	token, ok3 := r[2].(int64)
	remaining, ok4 := r[3].(int64)
	meta, ok5 := r[4].(string)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !isText || token < 0 || remaining < 0 { // 0: less than one is left
		return backend.Holder{}, false
	}
	return backend.Holder{
		Owner: plain(owner), ID: plain(id), Mode: modeFrom(letter), Token: uint64(token),
		TTL: max(duration(remaining), time.Millisecond), Meta: decodeMeta(meta), Weight: weight,
	}, true
}

func decodeWaiter(entry any) (backend.Waiter, bool) {
	r, weight, ok := weighed(entry, 4)
	if !ok || len(r) != 3 {
		return backend.Waiter{}, false
	}
	owner, ok1 := r[0].(string)
	letter, ok2 := r[1].(string)
	meta, ok3 := r[2].(string)
	w := backend.Waiter{
		Owner: plain(owner), Mode: modeFrom(letter), Meta: decodeMeta(meta), Weight: weight,
	}
	return w, ok1 && ok2 && ok3
}

// weighed takes the weight off an entry that has n values with it; without it the weight is 0, and
// the entry is shorter.
func weighed(entry any, n int) (r []any, weight int, ok bool) {
	if r, ok = entry.([]any); !ok || len(r) != n {
		return r, 0, ok
	}
	w, ok := r[n-1].(int64)
	return r[:n-1], int(w), ok && w > 1 && w <= backend.MaxPermits
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
