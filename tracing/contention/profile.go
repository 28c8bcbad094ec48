package contention

import (
	"context"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// maxSites is how many places times classes are told apart. What comes after is summed up.
const maxSites = 10_000

// A site is a place that waited, or was waited for, for a class of keys.
type site struct {
	stack [depth]uintptr
	class string
}

type spent struct {
	count int64
	time  time.Duration
}

// profiled is where time was spent.
type profiled map[site]spent

func (p profiled) add(stack [depth]uintptr, class string, d time.Duration) {
	at := site{stack, class}
	s, known := p[at]
	if !known && len(p) >= maxSites {
		at = site{class: "_other"}
		s = p[at]
	}
	if !known {
		at.class = strings.Clone(at.class) // not to keep the whole key
	}
	p[at] = spent{s.count + 1, s.time + d}
}

// WriteProfile writes a profile of lock waits, in the gzipped form that go tool pprof reads: by
// the stacks of those who waited or, as the mutex profile of Go, of those who held meanwhile, as
// far as that was in this process. Samples have how often and how long, and the label "class". It
// is of all since the Tracker was made or, with a positive d, of the next d; it ends early with
// ctx.
func (t *Tracker) WriteProfile(ctx context.Context, w io.Writer, holders bool, d time.Duration) error {
	from, before := t.began, profiled{}
	if d > 0 {
		from, before = time.Now(), t.profile(holders)
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	b := builder{
		Profile: profile.Profile{
			SampleType:        []*profile.ValueType{{Type: "contentions", Unit: "count"}, {Type: "delay", Unit: "nanoseconds"}},
			DefaultSampleType: "delay",
			PeriodType:        &profile.ValueType{Type: "contentions", Unit: "count"}, Period: 1,
			TimeNanos: from.UnixNano(), DurationNanos: time.Since(from).Nanoseconds(),
		},
		locations: map[uintptr]*profile.Location{}, functions: map[string]*profile.Function{},
	}
	b.Mapping = []*profile.Mapping{
		{ID: 1, HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true},
	}
	for at, s := range t.profile(holders) {
		if was := before[at]; s.count > was.count {
			b.add(at, spent{s.count - was.count, s.time - was.time})
		}
	}
	return b.Write(w)
}

func (t *Tracker) profile(holders bool) profiled {
	t.mu.Lock()
	defer t.mu.Unlock()
	if holders {
		return maps.Clone(t.held)
	}
	return maps.Clone(t.waited)
}

// A builder makes a profile out of program counters.
type builder struct {
	profile.Profile
	locations map[uintptr]*profile.Location // nil for what is left out
	functions map[string]*profile.Function
}

func (b *builder) add(at site, s spent) {
	sample := &profile.Sample{Value: []int64{s.count, s.time.Nanoseconds()}, Label: map[string][]string{"class": {at.class}}}
	if at.stack == ([depth]uintptr{}) {
		sample.Location = []*profile.Location{b.nowhere()}
	}
	for _, pc := range at.stack {
		if pc == 0 {
			break
		}
		if l := b.location(pc); l != nil {
			sample.Location = append(sample.Location, l)
		}
	}
	b.Sample = append(b.Sample, sample)
}

// nowhere stands for another process, and for what is summed up.
func (b *builder) nowhere() *profile.Location {
	if b.locations[0] == nil {
		l := &profile.Location{ID: uint64(len(b.Location) + 1), Mapping: b.Mapping[0]}
		l.Line = []profile.Line{{Function: b.function(runtime.Frame{Function: "another process"})}}
		b.locations[0] = l
		b.Location = append(b.Location, l)
	}
	return b.locations[0]
}

// location is where pc is. Frames of the lock itself are left out, so that the one who waits is on
// top.
func (b *builder) location(pc uintptr) *profile.Location {
	if l, ok := b.locations[pc]; ok {
		return l
	}
	l := &profile.Location{Address: uint64(pc), Mapping: b.Mapping[0]}
	for _, f := range frames([]uintptr{pc}) {
		l.Line = append(l.Line, profile.Line{Function: b.function(f), Line: int64(f.Line)})
	}
	if len(l.Line) == 0 {
		b.locations[pc] = nil
		return nil
	}
	l.ID = uint64(len(b.Location) + 1)
	b.locations[pc] = l
	b.Location = append(b.Location, l)
	return l
}

func (b *builder) function(f runtime.Frame) *profile.Function {
	fn := b.functions[f.Function]
	if fn == nil {
		fn = &profile.Function{ID: uint64(len(b.Function) + 1), Name: f.Function, SystemName: f.Function, Filename: f.File}
		b.functions[f.Function] = fn
		b.Function = append(b.Function, fn)
	}
	return fn
}

// frames are the frames of a stack, without those of the lock.
func frames(stack []uintptr) (all []runtime.Frame) {
	if n := slices.Index(stack, 0); n >= 0 {
		stack = stack[:n]
	}
	if len(stack) == 0 {
		return nil
	}
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
	return ok && (strings.HasPrefix(after, "locker.") || strings.HasPrefix(after, "tracing/contention."))
}
