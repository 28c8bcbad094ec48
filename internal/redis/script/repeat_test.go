package script

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// An attempt that is repeated keeps its place, its number and what it asked for.
//
// covers: W4
func TestRepeatKeepsPlace(t *testing.T) {
	r := newRig(t)
	r.granted(queued("holder"))
	for i, name := range []string{"a", "b", "c"} {
		_ = r.refused(queued(name), i+1)
	}
	before := r.field("q:2")
	r.lapse(5 * time.Millisecond)
	var first, second int64
	again := queued("b")
	again.Meta = backend.Meta{Service: "another"} // who asks may change, and nothing else
	second = r.refused(again, 2).RetryAfter.Milliseconds()
	first = r.refused(queued("a"), 1).RetryAfter.Milliseconds()
	if first <= 0 || first > minute.Milliseconds()+1 || second != 0 {
		t.Errorf("the first is to ask in %d ms, and the second in %d, want the end of the "+
			"lease and never", first, second)
	}
	var was, is int64
	var rest, same string
	_, _ = fmt.Sscan(before, &was)
	_, _ = fmt.Sscan(r.field("q:2"), &is)
	rest, same = before[13:]+`{"service":"another"}`, r.field("q:2")[13:]
	if is < was+5 || rest != same {
		t.Errorf("a place became %q, and was %q", r.field("q:2"), before)
	}
	again.WaiterTTL = time.Millisecond
	_ = r.refused(again, 2)
	var later int64
	if _, _ = fmt.Sscan(r.field("q:2"), &later); later < is {
		t.Errorf("a repeat with a shorter time made a place end at %d, not %d", later, is)
	}
	if more := r.field("q:4"); more != "" {
		t.Errorf("there is a place %q more", more)
	}

	r.srv.MustDo("CONFIG", "SET", "maxmemory", "1") // what keeps a place is taken also then
	_ = r.refused(queued("b"), 2)
	r.srv.MustDo("CONFIG", "SET", "maxmemory", "0")

	// A place that has lapsed is no place: who comes back stands at the end.
	brief := queued("brief")
	_ = r.refused(brief, 4)
	_ = r.refused(queued("last"), 5)
	r.ended("w:brief")
	_ = r.refused(brief, 5)
	for _, name := range []string{"brief", "last"} {
		_ = r.drop(queued(name))
	}

	// Whoever left, from the middle, and whoever died, at the head, is not counted any more.
	leaves := func(name string) {
		if err := r.drop(queued(name)); !errors.Is(err, backend.ErrLost) {
			t.Fatalf("%s leaves: %v, want ErrLost", name, err)
		}
	}
	leaves("b")
	_ = r.refused(queued("c"), 2)
	leaves("a")
	_ = r.refused(queued("a"), 2)
	_ = r.refused(queued("c"), 1)
	leaves("c")
	_ = r.refused(queued("d"), 2)
	r.ended("w:a")
	if held := r.refused(queued("d"), 1); held.RetryAfter <= 0 {
		t.Error("behind a head that died nobody is to ask when the lease ends")
	}
	r.dropped(queued("holder"))
	r.granted(queued("d"))
}
