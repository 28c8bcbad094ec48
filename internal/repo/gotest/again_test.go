package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// stream is what go test -json prints of tests of package p that fail saying something each.
func stream(said ...string) string {
	var b strings.Builder
	for i, text := range said {
		fmt.Fprintf(&b, `{"Action":"output","Package":"p","Test":"T%d/sub","Output":%q}`+"\n", i, "    "+text+"\n")
		fmt.Fprintf(&b, `{"Action":"fail","Package":"p","Test":"T%d/sub"}`+"\n", i)
		fmt.Fprintf(&b, `{"Action":"fail","Package":"p","Test":"T%d"}`+"\n", i)
	}
	b.WriteString(`{"Action":"fail","Package":"p"}` + "\n")
	return b.String()
}

func TestSecondChance(t *testing.T) {
	const crash = `{"Action":"output","Package":"p","Output":"FAIL\tp\n"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"
	for _, test := range []struct {
		name, first  string
		second       string // what the run of them alone prints; empty: there is none
		good         bool
		wantUnsteady []string
	}{
		{"late", stream("not seen within 1s"), `{"Action":"pass","Package":"p","Test":"T0"}`, true, []string{"p T0"}},
		{"late again", stream("not seen within 1s"), stream("not seen within 1s"), false, nil},
		{"not found", stream("not seen within 1s"), "no tests to run\n", false, nil},
		{"two holders", stream(`"k" has two holders for 3ms`), "", false, nil},
		{"race", stream("WARNING: DATA RACE"), "", false, nil},
		{"token", stream("token 3 after 4"), "", false, nil},
		{"one of them serious", stream("late", "3 of 10 were granted"), "", false, nil},
		{"many", stream("late", "late", "late", "late"), "", false, nil},
		{"package", crash, "", false, nil},
		{"package too", stream("late") + strings.ReplaceAll(crash, `"p"`, `"q"`), "", false, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := func(in string) *report {
				r := newReport(&strings.Builder{}, "", false)
				if err := r.read(strings.NewReader(in)); err != nil {
					t.Fatal(err)
				}
				return r
			}
			r, ran := read(test.first), false
			r.again(func(pkg string, tests []string) *report {
				if ran = true; pkg != "p" || !slices.Equal(tests, []string{"T0"}) {
					t.Errorf("run again: %s %v", pkg, tests)
				}
				return read(test.second)
			})
			if ran != (test.second != "") {
				t.Errorf("run again: %v", ran)
			}
			if good := r.close(); good != test.good || !slices.Equal(r.unsteady, test.wantUnsteady) {
				t.Errorf("good = %v, want %v; unsteady %v, want %v", good, test.good, r.unsteady, test.wantUnsteady)
			}
		})
	}
}

func TestRerun(t *testing.T) {
	got := rerun([]string{"-race", "-p=1", "-coverprofile=x", "./..."}, "5", "p", []string{"A", "B"})
	if want := []string{"-race", "-p=1", "-count=5", "-run=^(A|B)$", "p"}; !slices.Equal(got, want) {
		t.Errorf("rerun = %v, want %v", got, want)
	}
}
