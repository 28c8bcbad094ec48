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

// DecodeAcquire reads the reply to an Acquire for c. Replies here and below are what a
// client makes of a RESP array: []any of int64 and string. A reply of another shape is an error
// that is no answer, so the caller must take it for unknown.
func DecodeAcquire(reply any, c backend.Claim) (backend.Grant, error) {
	if token, ok := reply.(int64); ok && token > 0 {
		return Granted(uint64(token), c), nil
	}
	r, code := open(reply)
	told := elements{r: r}
	switch {
	case code == codeShort:
		if token, _, ok := Short(reply, c); ok {
			return Granted(token, c), nil
		}
	case code == codeOK:
		if g, ok := decodeGrant(told, c); ok {
			return g, nil
		}
	case code == codeEarly && len(r) == 2:
		if rest := told.number(1); !told.bad {
			return backend.Grant{}, &backend.EarlyError{RetryAfter: duration(rest)}
		}
	case code == codeHeld && len(r) == 5:
		remaining, meta, position, token := told.number(1), told.text(2), told.number(3),
			told.number(4)
		if !told.bad {
			return backend.Grant{}, &backend.HeldError{
				RetryAfter: duration(remaining), Holder: decodeMeta(meta), Position: int(position),
				Token: uint64(token),
			}
		}
	case code == codeMismatch && len(r) == 2:
		return backend.Grant{}, &backend.MismatchError{InUse: int(told.number(1)), Asked: c.Limit}
	}
	return backend.Grant{}, no(r, code, reply)
}

// DecodeTryAcquireAll reads the reply to a TryAcquireAll for claims: the grants of the first of
// them.
func DecodeTryAcquireAll(reply any, claims []backend.Claim) ([]backend.Grant, error) {
	r, code := open(reply)
	if code != codeOK {
		return nil, no(r, code, reply)
	}
	if _, alone := reply.(int64); alone { // which would say that nothing was granted
		return nil, unexpected(reply)
	}
	told := elements{r: r}
	grants := make([]backend.Grant, 0, len(claims))
	for i := range r[1:] {
		token := told.number(1 + i)
		if told.bad || token == 0 || i == len(claims) {
			return nil, unexpected(reply)
		}
		grants = append(grants, Granted(uint64(token), claims[i]))
	}
	return grants, nil
}

// decodeGrant reads the long reply of a grant: with the state, for a claim that loads it, and then
// perhaps with the token of a hold that ran out.
func decodeGrant(told elements, c backend.Claim) (g backend.Grant, ok bool) {
	want := 3
	if c.Load {
		want = 4
	}
	if len(told.r) != want && len(told.r) != want+1 {
		return g, false
	}
	token, reserved, ok := told.number(1), told.number(2), true
	g = backend.Grant{Token: uint64(token), TTL: c.TTL, Reserved: int(reserved)}
	if c.Load {
		g.State, ok = decodeState(told.r[3])
	}
	if len(told.r) > want {
		g.TookOver = uint64(told.number(want))
	}
	return g, ok && !told.bad && token > 0 && g.TookOver < g.Token && reserved > 0 &&
		reserved <= backend.MaxReserve
}

// elements are those of a reply. bad is set once one is not what was asked for.
type elements struct {
	r   []any
	bad bool
}

// number is element i, which is not negative.
func (e *elements) number(i int) int64 {
	n, ok := e.r[i].(int64)
	if !ok || n < 0 {
		e.bad = true
		return 0
	}
	return n
}

func (e *elements) text(i int) string {
	text, ok := e.r[i].(string)
	e.bad = e.bad || !ok
	return text
}

// Short reads the reply of the short way of an Acquire, which stores the claim as it was
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

// Granted is the grant of a claim that got what it asked for. (What the store keeps is up to a
// millisecond longer.)
func Granted(token uint64, c backend.Claim) backend.Grant {
	return backend.Grant{Token: token, TTL: c.TTL, Reserved: max(c.Reserve, 1)}
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

// DecodeRenew reads the reply to a Renew.
func DecodeRenew(reply any) error {
	r, code := open(reply)
	if code == codeOK && len(r) == 1 {
		return nil
	}
	return no(r, code, reply)
}

// DecodeRelease reads the reply to a Release.
func DecodeRelease(reply any) (told backend.Released, err error) {
	if code, ok := reply.(int64); ok && code == codeOK { // by the short way: nobody waits
		return told, nil
	}
	r, code := open(reply)
	switch {
	case code == codeOK && len(r) == 1:
		return told, nil
	case code == codeOK && len(r) == 3:
		e := elements{r: r}
		waiting, next := e.number(1), e.text(2)
		if !e.bad && waiting > 0 {
			return backend.Released{Waiting: int(waiting), Next: decodeMeta(next)}, nil
		}
	case code == codeExpired && len(r) == 1:
		return told, fmt.Errorf("the lease had run out: %w", backend.ErrLost)
	}
	return told, no(r, code, reply)
}

// DecodeTryReleaseAll reads the reply to a TryReleaseAll of n claims: which were released.
func DecodeTryReleaseAll(reply any, n int) ([]bool, error) {
	r, code := open(reply)
	if code != codeOK {
		return nil, no(r, code, reply)
	}
	if len(r) != 1+n {
		return nil, unexpected(reply)
	}
	told := elements{r: r}
	released := make([]bool, n)
	for i := range released {
		switch told.number(1 + i) {
		case 0:
		case 1:
			released[i] = true
		default:
			told.bad = true
		}
	}
	if told.bad {
		return nil, unexpected(reply)
	}
	return released, nil
}

// DecodeReleaseAll reads the reply to a ReleaseAll of n claims: what Release would return for each.
func DecodeReleaseAll(reply any, n int) ([]error, error) {
	r, code := open(reply)
	if code != codeOK {
		return nil, no(r, code, reply)
	}
	if len(r) != 1+n {
		return nil, unexpected(reply)
	}
	answers := make([]error, n)
	for i, code := range r[1:] {
		if _, answers[i] = DecodeRelease(code); answers[i] != nil &&
			!errors.Is(answers[i], backend.ErrLost) {
			return nil, unexpected(reply)
		}
	}
	return answers, nil
}

// DecodeHeartbeat reads the reply to a Heartbeat for so many claims of each lock: what each
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
		told := elements{r: r[1+4*i:]}
		positions := told.text(0)
		if !told.bad && positions == "" && len(claims) > 1 {
			continue
		}
		token, remaining, meta := told.number(1), told.number(2), told.text(3)
		if answers[i] = decodePositions(positions, n); answers[i] == nil || told.bad {
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

// decodePositions reads n positions, 0 for a claim that does not wait. It returns nil if they are
// not that.
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
		// WRONGTYPE is what another's probe may have left for a ms.
		case !errors.Is(refusal, backend.ErrForeign):
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
