package backendtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/backend"
)

var releaseAllRules = []rule{
	{
		name: "release-all/each", run: releaseAllEach,
		why: "Each claim is answered by itself: what is lost, or wrong with one, keeps none " +
			"of the others.",
	},
	{
		name: "release-all/own", run: releaseAllOwn,
		why: "Claims that leave a key end nothing of who holds it, however many they are.",
	},
	{
		name: "release-all/places", run: releaseAllPlaces, needs: backend.Capabilities{
			Queue:   true,
			Inspect: true,
		},
		why: "Thousands of waiters that give up at once leave the queue, and whoever stood " +
			"behind them is let in at once.",
	},
	{
		name: "release-all/shared", run: releaseAllShared,
		needs: backend.Capabilities{Shared: true},
		why: "Those who hold together and go together leave what they held to the others, and " +
			"a free key when they were all.",
	},
	{
		name: "release-all/in-flight", run: releaseAllInFlight,
		why: "An attempt that comes after its release holds nothing, as after a Release.",
	},
	{
		name: "release-all/saves", run: releaseAllSaves, needs: backend.Capabilities{State: true},
		why: "A holder's state is saved by its release, whoever is released beside it.",
	},
	{
		name: "release-all/marks", run: releaseAllMarks,
		needs: backend.Capabilities{NotBefore: true},
		why: "A job's mark is left by its release, whoever is released beside it: without it " +
			"the job runs again at once.",
	},
	{
		name: "release-all/wakes", run: releaseAllWakes, needs: watch,
		why: "Who watches a key without a place in its queue hears that it is free, whichever of " +
			"those who left it had it, and that" +
			" nobody stands before it any more.",
	},
	{
		name: "release-all/input", run: releaseAllInput,
		why: "What are too many are refused before anything is written, and of none a store only " +
			"says whether it can.",
	},
}

// releaseAll releases claims together, and says of each whether it held. ok is false where each has
// to be released by itself, and where the request was repeated, as then a first one may have
// released.
func (e *env) releaseAll(b backend.Backend, claims ...backend.Claim) (answers []error, ok bool) {
	e.Helper()
	requests := 0
	err := e.answered(func() (err error) {
		requests++
		if answers, err = b.ReleaseAll(e.ctx, claims); err != nil {
			return err
		}
		if i := slices.IndexFunc(answers, func(err error) bool { return !answer(err) }); i >= 0 {
			return answers[i]
		}
		return nil
	})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		e.Log("each claim has to be released by itself")
		for i := range claims {
			_, err := b.Release(e.ctx, claims[i])
			answers = append(answers, err)
		}
		return answers, false
	case err != nil || len(answers) != len(claims):
		e.Fatalf("ReleaseAll of %d claims = %v, %v", len(claims), answers, err)
	}
	return answers, requests == 1
}

// released must be the answers to claims of which those held that are named.
func (e *env) released(answers []error, held ...bool) {
	e.Helper()
	for i, err := range answers {
		if !held[i] && err == nil || held[i] && errors.Is(err, backend.ErrLost) {
			e.broken("ReleaseAll answers for claim %d: %v; it held: %v", i, err, held[i])
		} else if held[i] && err != nil || !held[i] && !errors.Is(err, backend.ErrLost) {
			e.Errorf("ReleaseAll answers for claim %d: %v; it held: %v", i, err, held[i])
		}
	}
}

// covers: C1, C7, C8
func releaseAllEach(e *env) {
	a, b := e.open(), e.open()
	first, never, last := e.claim(e.key("first")), e.claim(e.key("never")), e.claim(e.key("last"))
	nameless := e.claim(last.Key)
	nameless.Owner = ""
	e.acquire(a, first)
	e.acquire(a, last)
	if answers, ok := e.releaseAll(a, first, never, nameless, last); ok {
		e.is("ReleaseAll of a claim without an owner", answers[2], backend.ErrInvalid)
		e.released(slices.Delete(answers, 2, 3), true, false, true)
	}
	for _, c := range []backend.Claim{first, never, last} {
		e.free(b, c.Key)
	}
	if answers, ok := e.releaseAll(a, first, last); ok {
		e.released(answers, false, false)
	}
}

// covers: C1, C2, A12
func releaseAllOwn(e *env) {
	a, b := e.open(), e.open()
	for _, noneInFlight := range []bool{false, true} {
		key := e.key("k")
		holder := e.claim(key)
		e.acquire(a, holder)
		strangers := []backend.Claim{e.claim(key), e.claim(key), e.claim(key)}
		for i := range strangers {
			strangers[i].NoneInFlight = noneInFlight
		}
		if answers, ok := e.releaseAll(b, strangers...); ok {
			e.released(answers, false, false, false)
		}
		e.held(b, e.claim(key))
		e.renewed(a, holder)
		other := e.claim(key)
		if answers, ok := e.releaseAll(a, other, holder); ok {
			e.released(answers, false, true)
		}
		e.free(b, key)
	}
}

// covers: W5, W7, W8
func releaseAllPlaces(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder := e.claim(key)
	e.acquire(a, holder)
	var gone []backend.Claim
	for range 40 {
		gone = append(gone, e.queued(a, key, e.long))
	}
	stays := e.queued(b, key, e.long)
	gone = append(gone, e.queued(a, key, e.long))
	defer e.forgetAll(b, append(gone, stays)...)
	if answers, ok := e.releaseAll(a, gone...); ok {
		e.released(answers, make([]bool, len(gone))...)
	}
	state, err := a.Inspect(e.ctx, key)
	if err != nil || len(state.Waiters) != 1 || state.Waiters[0].Owner != stays.Owner ||
		len(state.Holders) != 1 {
		e.Fatalf("Inspect when all but one have left = %+v, %v", state, err)
	}
	late := []backend.Claim{holder, e.queued(a, key, e.long), e.queued(a, key, e.long)}
	if answers, ok := e.releaseAll(a, late...); ok {
		e.released(answers, true, false, false)
	}
	state, err = a.Inspect(e.ctx, key)
	if err != nil || len(state.Waiters) != 0 || len(state.Holders) != 1 ||
		state.Holders[0].Owner != stays.Owner {
		e.Errorf("Inspect when the holder and those behind the last waiter have left = %+v, %v",
			state, err)
	}
	e.acquire(b, stays)
	e.release(b, stays)
	e.free(a, key)
}

// covers: B15, C1
func releaseAllShared(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	readers := make([]backend.Claim, 5)
	for i := range readers {
		readers[i] = e.claim(key)
		readers[i].Mode = backend.Shared
		e.acquire(a, readers[i])
	}
	if answers, ok := e.releaseAll(a, readers[3], readers[0], readers[4]); ok {
		e.released(answers, true, true, true)
	}
	e.held(b, e.claim(key))
	for _, c := range readers[1:3] {
		e.renewed(a, c)
	}
	if answers, ok := e.releaseAll(a, readers...); ok {
		e.released(answers, false, true, true, false, false)
	}
	e.free(b, key)
}

// covers: A4, C9
func releaseAllInFlight(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder, first, second := e.claim(key), e.claim(key), e.claim(key)
	e.acquire(a, holder)
	if answers, ok := e.releaseAll(a, first, holder, second); ok {
		e.released(answers, false, true, false)
	}
	for _, c := range []backend.Claim{first, second, holder} {
		e.tombstoned(a, c)
	}
	e.free(b, key)
}

func releaseAllSaves(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder, other := e.claim(key), e.claim(key)
	holder.Load = true
	e.acquire(a, holder)
	holder.Save = []byte("what it left")
	other.Load, other.Save = true, []byte("of who did not hold")
	if answers, ok := e.releaseAll(a, other, holder, e.claim(key)); ok {
		e.released(answers, false, true, false)
	}
	e.stored(b, key, []byte("what it left"))
}

func releaseAllMarks(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	holder, other := e.heeds(key, e.long), e.heeds(key, e.long)
	e.acquire(a, holder)
	if answers, ok := e.releaseAll(a, other, holder, e.claim(key)); ok {
		e.released(answers, false, true, false)
	}
	e.early(b, e.heeds(key, e.long), e.long)
}

// covers: W1, B15
func releaseAllWakes(e *env) {
	a, b := e.open(), e.open()
	for i := range 3 { // the holder is the first, the second, or the last of those who leave
		key := e.key(fmt.Sprint(i))
		leave := []backend.Claim{e.claim(key), e.claim(key), e.claim(key)}
		e.acquire(a, leave[i])
		wake, _ := e.watch(b, e.claim(key))
		e.held(b, e.claim(key))
		e.releaseAll(a, leave...)
		if !e.woken(wake, patience) {
			e.Errorf("the holder left as number %d of %d, and who watches was not woken", i+1,
				len(leave))
		}
	}
	if !e.caps.Shared || !e.caps.Queue {
		return
	}
	key := e.key("readers")
	holder, reader := e.claim(key), e.claim(key)
	holder.Mode, reader.Mode = backend.Shared, backend.Shared
	e.acquire(a, holder)
	writers := []backend.Claim{e.queued(a, key, e.long), e.queued(a, key, e.long)}
	defer e.forgetAll(a, writers...)
	wake, _ := e.watch(b, reader)
	e.held(b, reader) // behind the writers
	e.releaseAll(a, writers...)
	if !e.woken(wake, patience) {
		e.Error("all writers before it have left, and a reader who watches was not woken")
	}
	e.acquire(b, reader)
	e.release(b, reader)
	e.release(a, holder)
}

func releaseAllInput(e *env) {
	b := e.open()
	_, none := b.ReleaseAll(e.ctx, nil)
	if none != nil && !errors.Is(none, errors.ErrUnsupported) {
		e.Errorf("ReleaseAll of no claims = %v", none)
	}
	many := make([]backend.Claim, backend.MaxReleaseAll+1)
	for i := range many {
		many[i] = e.claim(e.key("k"))
	}
	if _, err := b.ReleaseAll(e.ctx, many); !errors.Is(err, backend.ErrInvalid) &&
		!errors.Is(err, errors.ErrUnsupported) {
		e.Errorf("ReleaseAll of %d claims = %v, want ErrInvalid", len(many), err)
	}
	if _, err := b.ReleaseAll(e.ctx, many[:2]); errors.Is(err,
		errors.ErrUnsupported) != errors.Is(none, errors.ErrUnsupported) {
		e.Errorf("ReleaseAll of two claims = %v, and of none %v", err, none)
	}
}
