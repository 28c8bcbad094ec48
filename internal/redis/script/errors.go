package script

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/backend"
)

// ErrNotPermitted is [backend.ErrDenied] for a user who is known, but may not do something: worth
// saying what is needed.
var ErrNotPermitted = fmt.Errorf("%w", backend.ErrDenied)

// classes says what the first word of an error reply means. An error reply is a definite answer:
// the server refused the command, and our scripts check everything before their first write.
var classes = map[string]error{
	"WRONGTYPE": backend.ErrForeign,

	"NOPERM":    ErrNotPermitted,
	"NOAUTH":    backend.ErrDenied,
	"WRONGPASS": backend.ErrDenied,
	"DENIED":    backend.ErrDenied, // protected mode

	"NOSCRIPT":    backend.ErrNotServing, // and EVAL was refused too
	"READONLY":    backend.ErrNotServing,
	"LOADING":     backend.ErrNotServing,
	"MASTERDOWN":  backend.ErrNotServing,
	"CLUSTERDOWN": backend.ErrNotServing,
	"TRYAGAIN":    backend.ErrNotServing,
	"MOVED":       backend.ErrNotServing,
	"ASK":         backend.ErrNotServing,
	"CROSSSLOT":   errors.ErrUnsupported,
	"REDIRECT":    backend.ErrNotServing, // Valkey, during a failover
	"OOM":         backend.ErrNotServing,
	"MISCONF":     backend.ErrNotServing,
	"NOREPLICAS":  backend.ErrNotServing,
	"BUSY":        backend.ErrNotServing,
}

// uncoded are the refusals for which Redis has no word of their own but ERR. They are matched at
// the start only.
var uncoded = []struct {
	start string
	class error
}{
	{"max number of clients", backend.ErrNotServing},
	{"The user executing the script", ErrNotPermitted}, // before Redis 7.2
	// since then; outside of scripts it is NOPERM
	{"ACL failure in script", ErrNotPermitted},
	{"invalid password", backend.ErrDenied}, // before Redis 6
	{"DB index is out of range", errors.ErrUnsupported},
	{"This instance has cluster support disabled", errors.ErrUnsupported},
	{"unknown command", errors.ErrUnsupported},
	// an option that the server does not know
	{"syntax error", errors.ErrUnsupported},
	{"Unknown Redis command called from", errors.ErrUnsupported}, // in a script, if it was renamed
	{"Unknown command called from", errors.ErrUnsupported},       // the same since Redis 7.2
}

// inScript is what Redis 6 puts before an error of a command that a script called.
var inScript = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^(Error running script \(call to f_[0-9a-f]*\): )?(@user_script: ?[0-9]+: )+`)
})

// ErrorCode returns an error reply without what server and client library put around it, and its
// first word, as in READONLY. A library may have taken an ERR from the beginning.
func ErrorCode(text string) (code, message string) {
	for _, before := range []string{"ERR ", "EXECABORT Transaction discarded because of: "} {
		text = strings.TrimPrefix(text, before)
	}
	// Redis 6 doubles the '-' of an error from a script.
	text = strings.TrimPrefix(text[len(inScript().FindString(text)):], "-")
	code, _, _ = strings.Cut(text, " ")
	return code, text
}

// ServerError classifies an error reply of the server by its first word, whichever version it has
// and whichever client library read it. The result wraps one of [backend.ErrForeign],
// [backend.ErrDenied], [backend.ErrNotServing], [errors.ErrUnsupported], or none of them if the
// word is not known, which the caller must take for an unknown answer.
func ServerError(text string) error {
	shown := withoutArguments(text)
	code, message := ErrorCode(text)
	if class, ok := classes[code]; ok {
		return fmt.Errorf("%w: %s", class, shown)
	}
	for _, u := range uncoded {
		if strings.HasPrefix(message, u.start) {
			return fmt.Errorf("%w: %s", u.class, shown)
		}
	}
	return errors.New("redis: " + shown)
}

// userName is what Redis 7.2 and later say of a user without permissions.
var userName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bUser \S+ has`) })

// withoutArguments cuts off an error the echo of the arguments, which may be those of AUTH, the
// name of the user, and what is too long for a log.
func withoutArguments(text string) string {
	text, _, _ = strings.Cut(text, ", with args beginning with")
	text = userName().ReplaceAllString(text, "User *** has")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}

// CheckMemory reads the reply to INFO memory. It returns an error that is [backend.ErrUnsafe]
// unless the server keeps its keys when memory runs out: a lock that is evicted is a lock that two
// hold.
func CheckMemory(info string) error {
	limit, hasLimit := InfoField(info, "maxmemory")
	policy, hasPolicy := InfoField(info, "maxmemory_policy")
	switch {
	case hasPolicy && policy == "noeviction", hasLimit && limit == "0":
		return nil
	case !hasPolicy || !hasLimit:
		return fmt.Errorf("%w: the server does not tell its maxmemory-policy", backend.ErrUnsafe)
	}
	return fmt.Errorf("%w: maxmemory-policy is %s, which may evict a lock that is held; "+
		"set noeviction", backend.ErrUnsafe, policy)
}

// InfoField returns a field of a reply to INFO.
func InfoField(info, name string) (string, bool) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value, true
		}
	}
	return "", false
}
