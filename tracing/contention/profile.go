package contention

import (
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// maxSites is how many places times classes are told apart. What comes after is summed up.
const maxSites = 10_000

// A site is a place that waited, for a class of keys.
type site struct {
	stack [depth]uintptr
	class string
}

type spent struct {
	count int64
	time  time.Duration
}

// count adds a wait to the profile. The caller has mu.
func (t *Tracker) count(l *lock, d time.Duration) {
	at := site{l.stack, t.class(l.Key)}
	s, known := t.profile[at]
	if !known && len(t.profile) >= maxSites {
		t.dropped.count++
		t.dropped.time += d
		return
	}
	if !known {
		at.class = strings.Clone(at.class) // not to keep the whole key
	}
	t.profile[at] = spent{s.count + 1, s.time + d}
}

// WriteProfile writes the profile of lock waits since the Tracker was made, in the gzipped form
// that go tool pprof reads. Its samples are the stacks of those who had to wait, with how often and
// how long, and the label "class".
func (t *Tracker) WriteProfile(w io.Writer) error {
	b := builder{
		Profile: profile.Profile{
			SampleType:        []*profile.ValueType{{Type: "contentions", Unit: "count"}, {Type: "delay", Unit: "nanoseconds"}},
			DefaultSampleType: "delay",
			PeriodType:        &profile.ValueType{Type: "contentions", Unit: "count"}, Period: 1,
			TimeNanos: t.began.UnixNano(), DurationNanos: time.Since(t.began).Nanoseconds(),
		},
		locations: map[uintptr]*profile.Location{}, functions: map[string]*profile.Function{},
	}
	mapping := &profile.Mapping{ID: 1, HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true}
	b.Mapping = []*profile.Mapping{mapping}
	t.mu.Lock()
	for at, s := range t.profile {
		b.add(at, s)
	}
	if t.dropped.count > 0 {
		b.add(site{class: "_other"}, t.dropped)
	}
	t.mu.Unlock()
	return b.Write(w)
}

// A builder makes a profile out of program counters.
type builder struct {
	profile.Profile
	locations map[uintptr]*profile.Location // nil for what is left out
	functions map[string]*profile.Function
}

func (b *builder) add(at site, s spent) {
	sample := &profile.Sample{Value: []int64{s.count, s.time.Nanoseconds()}, Label: map[string][]string{"class": {at.class}}}
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
