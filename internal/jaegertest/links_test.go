//go:build jaeger

package jaegertest

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(runWorker())
	}
	goleak.VerifyTestMain(testserver.StopAfter(m))
}

// blockers are the spans that a span links to as what it waited for; a nil one was not to be found.
func blockers(s span, all ...map[string]span) (found []*span) {
	for _, ref := range s.References {
		if ref.RefType != "FOLLOWS_FROM" {
			continue
		}
		var to *span
		for _, spans := range all {
			if s, ok := spans[ref.SpanID]; ok && s.TraceID == ref.TraceID {
				to = &s
			}
		}
		found = append(found, to)
	}
	return found
}

func only(t *testing.T, spans map[string]span, name string) span {
	t.Helper()
	for _, s := range spans {
		if s.OperationName == name {
			return s
		}
	}
	t.Fatalf("no %s", name)
	return span{}
}

// A wait in one process links to the hold in the other, and is as long as it took.
func TestWaitLeadsToHold(t *testing.T) {
	j, srv := startJaeger(t), testserver.Redis(t)
	holder := startWorker(t, order{Name: "holder", Store: srv.URL(), Jaeger: j.otlp, Goroutines: 1, Hold: 1500 * time.Millisecond})
	holder.next(t) // has the lock
	waiter := startWorker(t, order{Name: "waiter", Store: srv.URL(), Jaeger: j.otlp, Goroutines: 1})
	waited := waiter.next(t).Waited
	if waited < 100*time.Millisecond {
		t.Fatalf("waited for %v only: the holder was too quick", waited)
	}
	holder.next(t) // has sent everything
	waiter.next(t)

	one, two := j.spans(t, "holder", "lock.hold", 1), j.spans(t, "waiter", "lock.hold", 1)
	hold, wait, next := only(t, one, "lock.hold"), only(t, two, "lock.wait"), only(t, two, "lock.hold")
	if d := wait.took() - waited; d > 0 || d < -20*time.Millisecond { // the span is inside of the call
		t.Errorf("the span took %v, Lock took %v", wait.took(), waited)
	}
	if b := blockers(wait, one, two); len(b) != 1 || b[0] == nil || b[0].SpanID != hold.SpanID || b[0].service != "holder" {
		t.Errorf("the wait's links %v do not lead to the hold %v", wait.References, hold.SpanID)
	}
	if d := hold.took(); d < 1500*time.Millisecond || d > 10*time.Second {
		t.Errorf("the hold took %v", d)
	}
	if b := blockers(hold, one, two); len(b) != 1 || b[0] == nil || b[0].SpanID != next.SpanID {
		t.Errorf("the hold's links %v do not lead to the hold that it unblocked, %v", hold.References, next.SpanID)
	}
	for name, parent := range map[string]string{"store.acquire": wait.SpanID, "lock.release": next.SpanID} {
		if s := only(t, two, name); s.References[0].RefType != "CHILD_OF" || s.References[0].SpanID != parent {
			t.Errorf("%s is not under %s: %v", name, parent, s.References)
		}
	}
}

// With several goroutines in each process every wait that was blocked says by whom, and every link leads to a span.
func TestManyGoroutines(t *testing.T) {
	const n = 4
	j, srv := startJaeger(t), testserver.Redis(t)
	names := []string{"a", "b"}
	var workers []worker
	for _, name := range names {
		workers = append(workers, startWorker(t, order{Name: name, Store: srv.URL(), Jaeger: j.otlp, Goroutines: n, Hold: 150 * time.Millisecond}))
	}
	for _, w := range workers {
		for range n + 1 {
			w.next(t)
		}
	}
	a, b := j.spans(t, "a", "lock.hold", n), j.spans(t, "b", "lock.hold", n)
	across, blocked := 0, 0
	for _, spans := range []map[string]span{a, b} {
		for _, s := range spans {
			found := blockers(s, a, b)
			for _, to := range found {
				if to == nil {
					t.Errorf("%s of %s links to a span that is not there: %v", s.OperationName, s.service, s.References)
					continue
				}
				if s.OperationName == "lock.wait" && to.service != s.service {
					across++
				}
				if s.OperationName == "lock.wait" && to.OperationName != "lock.hold" && to.OperationName != "lock.lease" {
					t.Errorf("a wait is blocked by a %s", to.OperationName)
				}
			}
			if s.OperationName == "lock.wait" && len(found) > 0 {
				blocked++
			}
		}
	}
	if blocked != 2*n-1 || across == 0 {
		t.Errorf("%d of %d waits say by whom they were blocked, %d links lead to the other process", blocked, 2*n-1, across)
	}
}
