package blame

import (
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// MostNames is how many values of an attribute are told apart.
	MostNames = 200
	// OtherName stands for those beyond, and for what is no name.
	OtherName = "_other"

	longestName = 80 // bytes: what DNS allows for one, and a process number
)

// Names are the values of an attribute, the first that come, so that a name that differs in each
// key or pod does not become a million time series. The zero Names is ready for use, by many
// goroutines.
type Names struct {
	mu    sync.Mutex
	known map[string]string
}

// Of returns what name is counted as.
func (ns *Names) Of(name string) string {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	own, known := ns.known[name]
	switch {
	case known:
		return own
	case len(ns.known) == MostNames || len(name) > longestName || !utf8.ValidString(name):
		return OtherName
	case ns.known == nil:
		ns.known = map[string]string{}
	}
	own = strings.Clone(name) // the key it is a part of need not stay in memory
	ns.known[own] = own
	return own
}
