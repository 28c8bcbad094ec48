package backend_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// covers: R22, X13
func TestNamespaced(t *testing.T) {
	for _, c := range []struct{ namespace, key, want string }{
		{"", "sku-1", "sku-1"},
		{"shop", "sku-1", "shop~sku-1"},
		{"", "a~b", "a%7Eb"},
		{"a", "b", "a~b"},
		{"", "a%7Eb", "a%257Eb"},
		{"a~", "b", "a%7E~b"},
		{"a", "~b", "a~~b"},
		{"a", "", "a~"},
		{"", "", ""},
		{"汉", "字", "汉~字"},
	} {
		if got := backend.Namespaced(c.namespace, c.key); got != c.want {
			t.Errorf("Namespaced(%q, %q) = %q, want %q", c.namespace, c.key, got, c.want)
		}
	}
}

// Two different pairs never meet.
//
// covers: R22, X13, I4
func FuzzNamespaced(f *testing.F) {
	for _, s := range []string{"", "~", "%", "%7E", "a~b", "a"} {
		f.Add(s, "k", "", s)
		f.Add(s, s, s+"~", s)
		f.Add("", s, s, "")
	}
	f.Fuzz(func(t *testing.T, n1, k1, n2, k2 string) {
		same := n1 == n2 && k1 == k2
		if got := backend.Namespaced(n1, k1) == backend.Namespaced(n2, k2); got != same {
			t.Errorf("(%q, %q) and (%q, %q) both give %q", n1, k1, n2, k2,
				backend.Namespaced(n1, k1))
		}
	})
}

// Short strings of the characters that matter, all pairs of pairs.
func TestNamespacedIsInjective(t *testing.T) {
	var words []string
	var grow func(string)
	grow = func(w string) {
		words = append(words, w)
		if len(w) < 3 {
			for _, c := range "~%7E" {
				grow(w + string(c))
			}
		}
	}
	grow("")
	seen := map[string][2]string{}
	for _, n := range words {
		for _, k := range words {
			got := backend.Namespaced(n, k)
			if other, ok := seen[got]; ok {
				t.Fatalf("%q and %q both give %q", other, [2]string{n, k}, got)
			}
			seen[got] = [2]string{n, k}
		}
	}
	if !strings.HasPrefix(backend.Namespaced("n", "k"), "n") {
		t.Error("keys of a namespace have no common prefix")
	}
}
