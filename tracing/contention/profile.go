package contention

import (
	"cmp"
	"context"
	"io"
	"maps"
	"runtime"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/holdfast-go/holdfast/internal/blame"
)

// maxSites is how many places times classes are told apart. What comes after is summed up.
const maxSites = 10_000

// A site is a place that waited or, with a holder, was waited for, for a class of keys.
type site struct {
	stack  [depth]uintptr // of a holder in this process
	class  string
	holder string // here, or which process
}

const here = "this process"

type spent struct {
	count int64
	time  time.Duration
}

// spending is where time was spent.
type spending map[site]spent

func (all spending) add(at site, d time.Duration) {
	at.class = strings.Clone(at.class) // not to keep the whole key
	if _, known := all[at]; !known && len(all) >= maxSites {
		at = site{class: blame.OtherName, holder: at.holder}
	}
	all[at] = spent{all[at].count + 1, all[at].time + d}
}

// WriteProfile writes a profile of lock waits, in the gzipped form that go tool pprof reads: by
// the stacks of those who waited or, as the mutex profile of Go, of those who held meanwhile, as
// far as that was in this process; of another it has the service and pid, for 200 processes at
// most. Samples have how often and how long, and the label "class"; those of holders have "holder",
// which says what process that was. It is of all since the Tracker was made or, with a positive d,
// of the next d; it ends early with ctx.
func (t *Tracker) WriteProfile(ctx context.Context, w io.Writer, holders bool,
	d time.Duration,
) error {
	from, before := t.began, spending{}
	if d > 0 {
		from, before = time.Now(), t.spending()
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "contentions", Unit: "count"},
			{Type: "delay", Unit: "nanoseconds"},
		},
		DefaultSampleType: "delay",
		PeriodType:        &profile.ValueType{Type: "contentions", Unit: "count"}, Period: 1,
		TimeNanos: from.UnixNano(), DurationNanos: time.Since(from).Nanoseconds(),
		Mapping: []*profile.Mapping{
			{
				ID: 1, HasFunctions: true, HasFilenames: true, HasLineNumbers: true,
				HasInlineFrames: true,
			},
		},
	}
	known := map[runtime.Frame]*profile.Location{}
	for at, s := range t.spending() {
		was := before[at]
		if s.count == was.count || (at.holder != "") != holders {
			continue
		}
		sample := &profile.Sample{
			Value: []int64{s.count - was.count, (s.time - was.time).Nanoseconds()},
			Label: map[string][]string{"class": {at.class}},
		}
		if holders {
			sample.Label["holder"] = []string{at.holder}
		}
		stack := frames(at.stack[:])
		if len(stack) == 0 { // another process, or what is summed up
			stack = []runtime.Frame{{Function: cmp.Or(at.holder, at.class)}}
		}
		for _, f := range stack {
			if known[f] == nil {
				id := uint64(len(known) + 1)
				fn := &profile.Function{
					ID: id, Name: f.Function, SystemName: f.Function,
					Filename: f.File,
				}
				known[f] = &profile.Location{
					ID: id, Mapping: p.Mapping[0], Address: uint64(f.PC),
					Line: []profile.Line{{Function: fn, Line: int64(f.Line)}},
				}
				p.Function, p.Location = append(p.Function, fn), append(p.Location, known[f])
			}
			sample.Location = append(sample.Location, known[f])
		}
		p.Sample = append(p.Sample, sample)
	}
	return p.Write(w)
}

func (t *Tracker) spending() spending {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.spent)
}

// frames are the frames of a stack, without those of the lock.
func frames(stack []uintptr) (all []runtime.Frame) {
	for next := runtime.CallersFrames(stack); ; {
		f, more := next.Next()
		if f.Function != "" && !ours(f.Function) {
			all = append(all, f)
		}
		if !more {
			return all
		}
	}
}

// ours reports whether a function belongs to what is observed and not to who uses it.
func ours(function string) bool {
	_, after, ok := strings.Cut(function, "/holdfast/")
	return ok && (strings.HasPrefix(after, "locker.") ||
		strings.HasPrefix(after, "tracing/contention."))
}
