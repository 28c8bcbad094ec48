package locker

import (
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/backend"
)

// maxClass is how long a class may be, in bytes: it is in each span, and a label of each metric.
const maxClass = 64

// ClassOf returns what the keys that fit a pattern of [Config.Classes] are called: what stands
// before its first wildcard, which is one of * ? [ and \, without separators at the end (- _ . : /
// | # = @ ~). So "order-*" gives "order", "shop/invoice/*" gives "shop/invoice", and "leader"
// itself. The error is a *[backend.InvalidError]: the pattern is none, or such a class would be
// empty, over 64 bytes, or not UTF-8.
func ClassOf(pattern string) (string, error) {
	class, reason := classOf(pattern), ""
	_, err := path.Match(pattern, "")
	switch {
	case err != nil:
		reason = "is no pattern as of path.Match"
	case class == "":
		reason = "has no text before its first wildcard, which the class would be called by"
	case len(class) > maxClass:
		reason = "gives a class of " + strconv.Itoa(len(class)) + " bytes, over " +
			strconv.Itoa(maxClass)
	case !utf8.ValidString(class):
		reason = "gives a class that is not UTF-8"
	default:
		return class, nil
	}
	return "", &backend.InvalidError{Field: "Classes", Value: pattern, Reason: reason}
}

// classOf is the class of a pattern. It is a part of that, and allocates nothing.
func classOf(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		pattern = pattern[:i]
	}
	return strings.TrimRight(pattern, "-_.:/|#=@~")
}

// class returns the class of a key, or "".
func (c *core) class(key string) string {
	for _, pattern := range c.cfg.Classes {
		if fits, _ := path.Match(pattern, key); fits { // New has seen that it is a pattern
			return classOf(pattern)
		}
	}
	return ""
}
