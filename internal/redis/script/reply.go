package script

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// The codes that lead every script's reply. Decisions are made on them alone, never on a text.
const (
	codeOK       = 1
	codeHeld     = 2
	codeLost     = 3
	codeForeign  = 4
	codeExpired  = 5
	codeMismatch = 6
	codeClosed   = 7
	codeUnfit    = 8
	codeEarly    = 9
	codeShort    = 10
)

// DecodeAcquire reads the reply to [Scripts.Acquire] for c. Replies here and below are what a
// client makes of a RESP array: []any of int64 and string. A reply of another shape is an error
// that is no answer, so the caller must take it for unknown.
func DecodeAcquire(reply any, c backend.Claim) (backend.Grant, error) {
	if token, _, ok := Short(reply, c); ok {
		return Granted(token, c), nil
	}
	r, code := open(reply)
	switch {
	case code == codeOK && len(r) == 3 && !c.Load, code == codeOK && len(r) == 4 && c.Load:
		token, ok1 := r[1].(int64)
		reserved, ok2 := r[2].(int64)
		state, ok3 := []byte(nil), true
		if c.Load {
			state, ok3 = decodeState(r[3])
		}
		if ok1 && ok2 && ok3 && token > 0 && reserved > 0 && reserved <= backend.MaxReserve {
			return backend.Grant{Token: uint64(token), TTL: roundUp(c.TTL), Reserved: int(reserved), State: state}, nil
		}
	case code == codeEarly && len(r) == 2:
		if rest, ok := r[1].(int64); ok && rest > 0 {
			return backend.Grant{}, &backend.EarlyError{RetryAfter: duration(rest)}
		}
	case code == codeHeld && len(r) == 5:
		remaining, ok1 := r[1].(int64)
		meta, ok2 := r[2].(string)
		position, ok3 := r[3].(int64)
		token, ok4 := r[4].(int64)
		if ok1 && ok2 && ok3 && ok4 && remaining >= 0 && position >= 0 && token >= 0 {
			return backend.Grant{}, &backend.HeldError{
				RetryAfter: duration(remaining), Holder: decodeMeta(meta), Position: int(position), Token: uint64(token),
			}
		}
	case code == codeMismatch && len(r) == 2:
		inUse, _ := r[1].(int64)
		return backend.Grant{}, &backend.MismatchError{InUse: int(inUse), Asked: c.Limit}
	}
	return backend.Grant{}, no(r, code, reply)
}

// Short reads the reply of the short way of [Scripts.Acquire], which stores the claim as it was
// sent and reserves what it asked for; ok is false for every other one. clock is a time in µs that
// the server's clock had reached: without a minimum token, the token is at most [Near] ahead of it.
func Short(reply any, c backend.Claim) (token, clock uint64, ok bool) {
	if n, ok := reply.(int64); ok && n > 0 {
		return uint64(n), uint64(max(n-Near, 0)), true
	}
	if r, code := open(reply); code == codeShort && len(r) == 3 && c.MinToken != 0 {
		n, ok1 := r[1].(int64)
		us, ok2 := r[2].(int64)
		return uint64(n), uint64(us), ok1 && ok2 && n > 0 && us > 0
	}
	return 0, 0, false
}

// Near is by how many µs a token may be ahead of the clock, or of a minimum token, as in
// lib/clock.lua.
const Near = 10_000

// Granted is the grant of a claim that got what it asked for.
func Granted(token uint64, c backend.Claim) backend.Grant {
	return backend.Grant{Token: token, TTL: roundUp(c.TTL), Reserved: max(c.Reserve, 1)}
}

// decodeState reads '+' and a state, or '-' for none.
func decodeState(reply any) (state []byte, ok bool) {
	text, _ := reply.(string)
	if text == "-" {
		return nil, true
	}
	text, ok = strings.CutPrefix(text, "+")
	return []byte(text), ok
}

// DecodeSaved reads the reply to [Saved].
func DecodeSaved(reply any) ([]byte, error) {
	state, ok := decodeState(reply)
	if !ok {
		return nil, unexpected(reply)
	}
	return state, nil
}

// DecodeRenew reads the reply to [Scripts.Renew].
func DecodeRenew(reply any) error {
	r, code := open(reply)
	if code == codeOK && len(r) == 1 {
		return nil
	}
	return no(r, code, reply)
}

// DecodeRelease reads the reply to [Scripts.Release].
func DecodeRelease(reply any) error {
	r, code := open(reply)
	switch {
	case code == codeOK && len(r) == 1:
		return nil
	case code == codeExpired && len(r) == 1:
		return fmt.Errorf("the lease had run out: %w", backend.ErrLost)
	}
	return no(r, code, reply)
}

// DecodeHeartbeat reads the reply to [Scripts.Heartbeat] for so many claims of each lock: what each
// claim is told, a *[backend.HeldError] or [backend.ErrLost]. It is nil for a lock of several that
// is to be asked about alone.
func DecodeHeartbeat(reply any, claims ...int) ([][]error, error) {
	r, code := open(reply)
	if code != codeOK {
		return nil, no(r, code, reply)
	}
	if len(r) != 1+4*len(claims) {
		return nil, unexpected(reply)
	}
	answers := make([][]error, len(claims))
	for i, n := range claims {
		positions, ok1 := r[1+4*i].(string)
		token, ok2 := r[2+4*i].(int64)
		remaining, ok3 := r[3+4*i].(int64)
		meta, ok4 := r[4+4*i].(string)
		alone := ok1 && positions == "" && len(claims) > 1
		if alone {
			continue
		}
		if answers[i] = decodePositions(positions, n); answers[i] == nil || !ok2 || !ok3 || !ok4 || token < 0 || remaining < 0 {
			return nil, unexpected(reply)
		}
		first := &backend.HeldError{Position: math.MaxInt}
		for _, answer := range answers[i] {
			if held, waits := answer.(*backend.HeldError); waits { //nolint:errorlint // not wrapped
				held.Token, held.Holder = uint64(token), decodeMeta(meta)
				if held.Position < first.Position {
					first = held
				}
			}
		}
		first.RetryAfter = duration(remaining)
	}
	return answers, nil
}

// decodePositions reads n positions, 0 for who does not wait. It returns nil if they are not that.
func decodePositions(text string, n int) (answers []error) {
	words := strings.Fields(text)
	if len(words) != n {
		return nil
	}
	for _, word := range words {
		position, err := strconv.ParseUint(word, 10, 31)
		switch {
		case err != nil:
			return nil
		case position == 0:
			answers = append(answers, backend.ErrLost)
		default:
			answers = append(answers, &backend.HeldError{Position: int(position)})
		}
	}
	return answers
}

// DecodeProbe reads the reply to [Probe]: the commands that the user may not run, none if all is
// well. A refusal for another reason (a replica, a failing disk) is the error.
func DecodeProbe(reply any) (denied []string, err error) {
	r, ok := reply.([]any)
	if !ok || len(r)%2 != 0 {
		return nil, unexpected(reply)
	}
	for i := 0; i < len(r); i += 2 {
		command, ok1 := r[i].(string)
		text, ok2 := r[i+1].(string)
		refusal := ServerError(text)
		switch {
		case !ok1 || !ok2:
			return nil, unexpected(reply)
		case errors.Is(refusal, ErrNotPermitted), errors.Is(refusal, errors.ErrUnsupported):
			denied = append(denied, command)
		case !errors.Is(refusal, backend.ErrForeign): // WRONGTYPE is what another's probe may have left for a ms
			return nil, refusal
		}
	}
	return denied, nil
}

// open returns the reply's elements and its code, 0 if it has none. A code alone stands for an
// array of it.
func open(reply any) (elements []any, code int64) {
	if code, ok := reply.(int64); ok {
		return []any{code}, code
	}
	r, ok := reply.([]any)
	if !ok || len(r) == 0 {
		return nil, 0
	}
	code, _ = r[0].(int64)
	return r, code
}

// no is the error of every code that is not a yes.
func no(r []any, code int64, reply any) error {
	switch code {
	case codeLost:
		return backend.ErrLost
	case codeMismatch:
		return backend.ErrMismatch
	case codeClosed:
		if len(r) == 3 {
			rest, _ := r[1].(int64)
			why, _ := r[2].(string)
			return &backend.QuarantineError{RetryAfter: duration(max(rest, 1)), Why: why}
		}
		return &backend.QuarantineError{}
	case codeUnfit:
		if len(r) == 2 {
			if why, ok := r[1].(string); ok {
				return fmt.Errorf("%w: %s", backend.ErrUnsafe, why)
			}
		}
		return backend.ErrUnsafe
	case codeForeign:
		if len(r) == 2 {
			if why, ok := r[1].(string); ok {
				return fmt.Errorf("%w: %s", backend.ErrForeign, why)
			}
		}
		return backend.ErrForeign
	}
	return unexpected(reply)
}

func unexpected(reply any) error {
	text := fmt.Sprintf("%v", reply)
	if len(text) > 100 {
		text = text[:100] + "…"
	}
	return fmt.Errorf("redis: a script gave an unexpected reply: %q", text)
}

// duration is ms milliseconds, at most a century: a damaged lease must not overflow into the past.
func duration(ms int64) time.Duration {
	return time.Duration(min(ms, 100*365*24*3600*1000)) * time.Millisecond
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
