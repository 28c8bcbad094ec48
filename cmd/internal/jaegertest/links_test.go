//go:build jaeger

package jaegertest

import (
	"os"
	"strings"
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

// bars are the spans that draw who held during a wait.
func bars(wait span, all map[string]span) (found []span) {
	for _, s := range all {
		for _, ref := range s.References {
			if ref.RefType == "CHILD_OF" && ref.SpanID == wait.SpanID &&
				strings.HasPrefix(s.OperationName, "held by ") {
				found = append(found, s)
			}
		}
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

// A wait in one process links to the lock that held in the other, and is as long as it took.
func TestWaitLeadsToHolder(t *testing.T) {
	j, srv := startJaeger(t), testserver.Redis(t)
	holder := startWorker(t, order{
		Name: "holder", Store: srv.URL(), Jaeger: j.otlp, Goroutines: 1,
		Hold: 1500 * time.Millisecond,
	})
	holder.next(t) // has the lock
	waiter := startWorker(t, order{Name: "waiter", Store: srv.URL(), Jaeger: j.otlp, Goroutines: 1})
	waited := waiter.next(t).Waited
	if waited < 100*time.Millisecond {
		t.Fatalf("waited for %v only: the holder was too quick", waited)
	}
	holder.next(t) // has sent everything
	waiter.next(t)

	one, two := j.spans(t, "holder", "lock order", 1), j.spans(t, "waiter", "lock order", 1)
	held, lock, wait, lease := only(t, one, "lock order"), only(t, two, "lock order"),
		only(t, two, "lock.wait order"), only(t, two, "lock.lease")
	// It begins with the first answer.
	if d := wait.took() - waited; d > 0 || d < -100*time.Millisecond {
		t.Errorf("the span took %v, Lock took %v", wait.took(), waited)
	}
	drawn := bars(wait, two)
	if len(drawn) != 1 || drawn[0].OperationName != "held by "+
		drawn[0].tagged("holdfast.holder.service") {
		t.Fatalf("drawn below the wait: %v", drawn)
	}
	if b := blockers(drawn[0], one, two); len(b) != 1 || b[0] == nil ||
		b[0].SpanID != held.SpanID || b[0].service != "holder" {
		t.Errorf("the bar's links %v do not lead to the lock %v", drawn[0].References, held.SpanID)
	}
	if d := held.took(); d < 1500*time.Millisecond || d > 10*time.Second {
		t.Errorf("the lock of the holder took %v", d)
	}
	if b := blockers(lease, one, two); len(b) != 1 || b[0] == nil || b[0].SpanID != lock.SpanID {
		t.Errorf("the lease's links %v do not lead to the lock that used it, %v", lease.References,
			lock.SpanID)
	}
	for _, name := range []string{"lock.wait order", "lock.lease", "store.release"} {
		// Of a parent that is linked as well, as the lease's is, Jaeger keeps the link alone.
		s := only(t, two, name)
		if kind := s.References[0].RefType; kind != "CHILD_OF" && name != "lock.lease" ||
			s.References[0].SpanID != lock.SpanID {
			t.Errorf("%s is not under %s: %v", name, lock.SpanID, s.References)
		}
	}
	for _, s := range two {
		if s.OperationName == "store.acquire" && s.References[0].SpanID != lock.SpanID &&
			s.References[0].SpanID != lease.SpanID {
			t.Errorf("store.acquire is neither under the lock nor under its lease: %v",
				s.References)
		}
	}
}

// With several goroutines in each process every wait says by whom it was blocked, and every link
// leads to a span.
func TestManyGoroutines(t *testing.T) {
	const n = 4
	j, srv := startJaeger(t), testserver.Redis(t)
	var workers []worker
	for _, name := range []string{"a", "b"} {
		workers = append(workers,
			startWorker(t, order{
				Name: name, Store: srv.URL(), Jaeger: j.otlp, Goroutines: n,
				Hold: 150 * time.Millisecond,
			}))
	}
	for _, w := range workers {
		for range n + 1 {
			w.next(t)
		}
	}
	a, b := j.spans(t, "a", "lock order", n), j.spans(t, "b", "lock order", n)
	across, blocked := 0, 0
	for _, spans := range []map[string]span{a, b} {
		for _, s := range spans {
			found := blockers(s, a, b)
			for _, to := range found {
				switch {
				case to == nil:
					t.Errorf("%s of %s links to a span that is not there: %v", s.OperationName,
						s.service, s.References)
				case to.OperationName != "lock order" && to.OperationName != "lock.lease":
					t.Errorf("%s links to a %s", s.OperationName, to.OperationName)
				case strings.HasPrefix(s.OperationName, "held by ") && to.service != s.service:
					across++
				}
			}
			if s.OperationName == "lock.wait order" && s.tag("holdfast.holder.pid") != nil {
				blocked++
			}
		}
	}
	if blocked != 2*n-1 || across == 0 {
		t.Errorf("%d of %d waits say by whom they were blocked, %d links lead to the other process",
			blocked, 2*n-1, across)
	}
}
