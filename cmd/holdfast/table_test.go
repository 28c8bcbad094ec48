package main

import (
	"bytes"
	"strings"
	"testing"
)

// columns is a table of texts, the first row the names.
func columns(shape table, rows ...string) table {
	for _, row := range rows {
		for i, cell := range strings.Split(row, "|") {
			shape[i].cells = append(shape[i].cells, cell)
		}
	}
	return shape.measured()
}

func TestTable(t *testing.T) {
	locks := func() table {
		return columns(table{{}, {optional: 1}, {optional: 3}, {}, {optional: 2, least: 6}},
			"KEY|MODE|TOKEN|BY|NOTE",
			"orders/europe/17|shared|1795880190944390|web-1|stock is counted", "k|-|-|web-2|-")
	}
	for width, want := range map[int]string{
		0: "" +
			"KEY               MODE    TOKEN             BY     NOTE\n" +
			"orders/europe/17  shared  1795880190944390  web-1  stock is counted\n" +
			"k                 -       -                 web-2  -\n",
		67: "" +
			"KEY               MODE    TOKEN             BY     NOTE\n" +
			"orders/europe/17  shared  1795880190944390  web-1  stock is counted\n" +
			"k                 -       -                 web-2  -\n",
		66: "" + // a token is shown whole, or not at all
			"KEY               MODE    BY     NOTE\n" +
			"orders/europe/17  shared  web-1  stock is counted\n" +
			"k                 -       web-2  -\n",
		42: "" + // a note is shortened, and shown as long as it has six
			"KEY               MODE    BY     NOTE\n" +
			"orders/europe/17  shared  web-1  stoc…nted\n" +
			"k                 -       web-2  -\n",
		38: "" +
			"KEY               MODE    BY\n" +
			"orders/europe/17  shared  web-1\n" +
			"k                 -       web-2\n",
		20: "" +
			"KEY            BY\n" +
			"orders…ope/17  web-1\n" +
			"k              web-2\n",
	} {
		var out bytes.Buffer
		if err := locks().fit(width).print(&out, ""); err != nil || out.String() != want {
			t.Errorf("at %d: %v\n%swant\n%s", width, err, &out, want)
		}
	}

	var out bytes.Buffer
	wide := columns(table{{}, {}}, "库存/世界|1", "k|2")
	if err := wide.print(&out, ""); err != nil || out.String() != "库存/世界  1\nk          2\n" {
		t.Errorf("%v\n%s", err, &out)
	}

	// Of what folds nothing is lost, and what fits keeps its blanks.
	find := columns(table{{fold: true}, {fold: true}}, "clock|a  b",
		"persistence|appendonly is off: whoever held may not hold any more")
	for width, want := range map[int]string{
		0: "> clock        a  b\n" +
			"> persistence  appendonly is off: whoever held may not hold any more\n",
		38: "> clock        a  b\n" +
			"> persistence  appendonly is off:\n" +
			">              whoever held may not hold\n" +
			">              any more\n",
		5: "> clock        a  b\n" + // no word is broken
			"> persistence  appendonly\n" +
			">              is off:\n" +
			">              whoever\n" +
			">              held may\n" +
			">              not hold\n" +
			">              any more\n",
	} {
		var out bytes.Buffer
		if err := find.fit(width).print(&out, "> "); err != nil || out.String() != want {
			t.Errorf("at %d: %v\n%swant\n%s", width, err, &out, want)
		}
	}
}
