package smallredis

import (
	"fmt"
	"slices"
	"strings"
)

// A Slot is what a server of a cluster knows of the slot of a key.
type Slot struct {
	Number int
	Owner  string // the address of who has it; empty: this server
	To     string // where its keys are being moved, one by one; empty: nowhere
	From   string // from where they are, to this server
}

const nonLocal = Error("ERR Script attempted to access a non local key in a cluster node")

// redirected returns the error of a server that cannot answer for keys, which have one slot, or
// nil. What is not there may be where the slot is moved to. There, only requests that were sent on
// are answered, those that come after ASKING. In a script it is an error like any other, and the
// script goes on.
func (s *Server) redirected(keys []string) any {
	if s.Slot == nil || len(keys) == 0 {
		return nil
	}
	slot := s.Slot(keys[0])
	if slot == nil {
		return nil
	}
	missing := len(slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return s.get(key) != nil
	}))
	tryAgain := Error("TRYAGAIN Multiple keys request during rehashing of slot")
	switch {
	case slot.Owner == "" && (slot.To == "" || missing == 0):
		return nil
	case slot.Owner == "" && missing < len(keys):
		return tryAgain
	case slot.Owner == "":
		return Error(fmt.Sprintf("ASK %d %s", slot.Number, slot.To))
	case slot.From != "" && s.asking && len(keys) > 1 && missing > 0:
		return tryAgain
	case slot.From != "" && s.asking:
		return nil
	}
	return Error(fmt.Sprintf("MOVED %d %s", slot.Number, slot.Owner))
}

// keysOf are the keys of a command.
func keysOf(name string, args []string) []string {
	switch {
	case name == "DEL":
		return args
	case len(args) > 0 && name != "PUBLISH" && name != "INFO" && name != "TIME" && name != "PING":
		return args[:1]
	}
	return nil
}

// Migrate moves a key to another server, as MIGRATE does in one step: what is left of its time to
// live is sent, not when it ends.
func (s *Server) Migrate(key string, to *Server) {
	v := s.get(key).clone()
	if v == nil {
		return
	}
	if v.expires != 0 {
		v.expires = to.now().UnixMilli() + max(v.expires-s.now().UnixMilli(), 1)
	}
	to.put(key, v)
	s.put(key, nil)
}

// Redirect reads where an error reply sends a request on: asking says that it is to be sent after
// ASKING. An empty address is that of no such reply.
func Redirect(err error) (addr string, asking bool) {
	reply, _ := err.(Error) //nolint:errorlint // as Do and Eval return it
	if words := strings.Fields(string(reply)); len(words) == 3 &&
		(words[0] == "MOVED" || words[0] == "ASK") {
		return words[2], words[0] == "ASK"
	}
	return "", false
}
