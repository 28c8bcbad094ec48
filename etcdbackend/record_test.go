package etcdbackend

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// What is written by hand is what json.Marshal writes.
func TestEncode(t *testing.T) {
	b := &Backend{}
	metas := []backend.Meta{
		{},
		{Service: "shop", Host: "h1", PID: 7},
		{Service: "shop", Host: "h1", PID: 8},
		{PID: 8},
		{Service: "a\"b<ö"},
		{Traceparent: "00-1-2-01", Since: time.Date(2030, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))},
		{Service: "shop", Host: "h1", PID: 7},
	}
	for _, owner := range []string{"", backend.NewOwner(), "a/b~ c", "\x00", "a\"b", `a\b`, "a<b", "a>b", "a&b", "grün", "\xff", "\x7f"} {
		for _, r := range []record{
			{},
			{Held: true},
			{Held: true, Lease: 11},
			{Held: true, Lease: 1 << 62},
			{Lease: 3},
			{Held: true, Lease: 11, Token: 5 << tokenShift},
			{Held: true, Reentrant: true, Hold: "h"},
		} {
			for _, m := range metas {
				r.Owner, r.Meta = owner, m
				want, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := b.encode(r); err != nil || !bytes.Equal(got, want) {
					t.Errorf("encode(%+v) = %s, %v, want %s", r, got, err, want)
				}
			}
		}
	}
	bad := backend.Meta{Since: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)}
	if v, err := b.encode(record{Held: true, Meta: bad}); err == nil {
		t.Errorf("a year that JSON does not take is %s", v)
	}
}
