package tracing_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/waiting"
)

// A holder learns from its release who waited in other processes: the span says how many, together
// with those of its own process, and links to the one that was next, if that has waited for long
// enough to be kept by tail sampling.
func TestHolderLearnsWhomItBlocked(t *testing.T) {
	for _, test := range []struct {
		pods, local int
		held        time.Duration
		opts        []locker.Option // of those that wait in the holder's process
		links       int
		sampler     sdktrace.Sampler // of the pods
	}{
		{pods: 0, held: time.Second},
		{pods: 5, held: 60 * time.Millisecond},
		{pods: 5, held: 700 * time.Millisecond, links: 1},
		// the link would lead nowhere
		{pods: 4, held: 701 * time.Millisecond, sampler: sdktrace.NeverSample()},
		{pods: 2, local: 3, held: 700 * time.Millisecond, links: 1},
		// each with a place of its own
		{
			pods: 2, local: 3, held: 700 * time.Millisecond, opts: []locker.Option{locker.Shared()},
			links: 1,
		},
	} {
		t.Run(fmt.Sprintf("%d+%d of %v, %d options", test.pods, test.local, test.held,
			len(test.opts)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := distant{mem(), time.Millisecond}
				start := func(name string, sampler sdktrace.Sampler) *process {
					lock := locker.Config{Service: name, Wait: waiting.Config{Passes: -1}}
					return startProcess(t, b, setup{unseen: true, lock: lock, sampler: sampler})
				}
				holder := start("holder", nil)
				g := holder.lock(t, "order-1")
				var pods []*process
				var wg sync.WaitGroup
				for i := range test.pods {
					p := start(fmt.Sprint("pod", i), test.sampler)
					pods = append(pods, p)
					wg.Go(func() { _ = p.lock(t, "order-1").Unlock() })
					time.Sleep(2 * time.Millisecond) // so that it is known who is next
				}
				for range test.local {
					wg.Go(func() { _ = holder.lock(t, "order-1", test.opts...).Unlock() })
				}
				time.Sleep(test.held)
				if err := g.Unlock(); err != nil {
					t.Fatal(err)
				}
				wg.Wait()
				synctest.Wait()
				span := holder.named("lock order")[0] // the first to end
				least := test.pods + test.local
				most := least
				// The process may queue again before its release is executed.
				if test.local > 0 && test.opts == nil {
					most++
				}
				got := 0
				if text := attr(span.Attributes, tracing.AttrWaiters); text != "" {
					got, _ = strconv.Atoi(text)
				}
				if got < least || got > most {
					t.Errorf("%d waited, want %d to %d", got, least, most)
				}
				next := links(span, tracing.LinkNext)
				if len(next) != test.links {
					t.Fatalf("%d links to who was next, want %d", len(next), test.links)
				}
				if test.links == 1 && !slices.Contains(spansOf(pods[0], "lock"), next[0]) {
					t.Errorf("the link leads to none of the spans of the first that waited")
				}
				for _, p := range append(pods, holder) {
					if err := p.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// spansOf returns the spans that have ended and whose names begin with name.
func spansOf(p *process, name string) (ids []trace.SpanID) {
	for _, s := range p.ended() {
		if strings.HasPrefix(s.Name, name) {
			ids = append(ids, id(s))
		}
	}
	return ids
}
