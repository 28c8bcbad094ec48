package script

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// endOfKey is a byte that no key has, as keys are UTF-8.
const endOfKey = "\xff"

// encodeBefore is what a hand-over message ends with: nothing, or who held before.
func encodeBefore(before []backend.Past) string {
	if len(before) == 0 {
		return ""
	}
	text, _ := json.Marshal(before[max(0, len(before)-backend.MaxBefore):]) // texts and numbers
	return endOfKey + string(text)
}

// DecodeHanded reads a message on a client's channel: "token reserved lease id key", a grant that
// was handed over to a claim in the queue, and who held before, if the release said so; with a line
// more for a claim that loads the state, which is the state as decodeState reads it, or '?' if the
// claim is to ask for it: then the wake-up is no grant. topic is the claim's [Layout.Topic]. ok is
// false for what is no such message, which is to be ignored: the claim asks by itself.
func DecodeHanded(message string) (topic string, w backend.Wake, ok bool) {
	var n [3]uint64
	for i := range n {
		digits, rest, found := strings.Cut(message, " ")
		number, err := strconv.ParseUint(digits, 10, 53)
		if !found || err != nil || number == 0 {
			return "", backend.Wake{}, false
		}
		n[i], message = number, rest
	}
	if n[1] > backend.MaxReserve || n[2] > uint64(backend.MaxTTL/time.Millisecond) ||
		!strings.Contains(message, " ") {
		return "", backend.Wake{}, false
	}
	message, line, loads := strings.Cut(message, "\n")
	message, before, told := strings.Cut(message, endOfKey)
	g := backend.Grant{
		Token: n[0], Reserved: int(n[1]),
		TTL: time.Duration(n[2]) * time.Millisecond,
	}
	// What was before decides nothing.
	if told && json.Unmarshal([]byte(before), &g.Before) != nil ||
		len(g.Before) > backend.MaxBefore {
		g.Before = nil
	}
	if loads {
		if g.State, ok = decodeState(line); !ok {
			return message, backend.Wake{}, true
		}
	}
	return message, backend.Wake{Granted: true, Grant: g}, true
}
