package terminal

import (
	"slices"
	"testing"
)

// A terminal shows some characters in two columns, and some with the one before.
func TestWidth(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		short   []string // in 0, 1, 2, … columns
	}{
		{"", 0, []string{"", "", ""}},
		{"a", 1, []string{"", "a", "a"}},
		{"order", 5, []string{"", "…", "o…", "o…r", "or…r", "order", "order"}},
		{"库存/世界", 9, []string{"", "…", "…", "…界", "库…", "库…界", "库…界", "库…世界", "库存…界", "库存/世界"}},
		{"e\u0301te\u0301", 3, []string{"", "…", "e\u0301…", "e\u0301te\u0301"}},
		{"ｗｉ", 4, []string{"", "…", "…", "…ｉ", "ｗｉ"}},
	} {
		if got := Width(c.text); got != c.columns {
			t.Errorf("%q has %d columns, want %d", c.text, got, c.columns)
		}
		for columns, want := range c.short {
			if got := Shorten(c.text, columns); got != want || Width(got) > columns {
				t.Errorf("%q in %d columns is %q, %d wide, want %q", c.text, columns, got,
					Width(got), want)
			}
		}
	}
	if got := Cut("世界", 3); got != "世" {
		t.Errorf("cut: %q", got)
	}
	if got, want := Fold("库存 库存 stock", 9), []string{"库存 库存", "stock"}; !slices.Equal(got, want) {
		t.Errorf("folded: %q, want %q", got, want)
	}
}
