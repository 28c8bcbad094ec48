package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// DecodeHanded reads a message on a client's channel: "token reserved lease id key", a grant that was handed over to a
// claim in line. topic is the claim's [Layout.Topic]. ok is false for what is no such message, which is to be ignored: the
// claim asks by itself.
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
	if n[1] > backend.MaxReserve || n[2] > uint64(backend.MaxTTL/time.Millisecond) || !strings.Contains(message, " ") {
		return "", backend.Wake{}, false
	}
	g := backend.Grant{Token: n[0], Reserved: int(n[1]), TTL: time.Duration(n[2]) * time.Millisecond}
	return message, backend.Wake{Granted: true, Grant: g}, true
}
