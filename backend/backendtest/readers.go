package backendtest

import (
	"github.com/holdfast-go/holdfast/backend"
)

var readerRules = []rule{
	{
		name: "readers/no-starvation", run: readersDoNotStarve, needs: queueReaders,
		why: "Readers who come and go without a gap must not keep a writer out for ever: who " +
			"comes behind it waits behind it.",
	},
	{
		name: "readers/batch", run: readersBatch, needs: backend.Capabilities{
			Queue:  true,
			Shared: true, Fencing: true,
		},
		why: "Readers that stand behind a writer are let in together when it leaves, each with a " +
			"token of its own, in the order" +
			" of the queue; the next writer and those behind it go on waiting.",
	},
	{
		name: "readers/dead-one", run: readersDeadOne, needs: queueReaders,
		why: "A writer in the queue waits for a dead reader's lease, however often the others " +
			"renew theirs.",
	},
	{
		name: "readers/writer-leaves", run: readersWriterLeaves, needs: queueReaders,
		why: "A writer that gives up was all that kept the readers behind it out: they are let " +
			"in as it leaves.",
	},
}

// covers: W14, W15
func readersDoNotStarve(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	reader := e.mode(key, backend.Shared, 0)
	e.acquire(a, reader)
	writer := e.inLine(key)
	e.stand(b, writer, 1)
	var behind []backend.Claim
	for i := range 5 {
		e.refused(a, e.mode(key, backend.Shared, 0))
		c := e.inLine(key)
		c.Mode = backend.Shared
		e.stand(a, c, i+2)
		behind = append(behind, c)
	}
	if _, err := a.TryAcquire(e.ctx, reader); err != nil {
		e.Errorf("repeat by the reader that holds = %v", err)
	}
	e.release(a, reader)
	e.turn(b, writer)
	for _, c := range behind {
		e.refused(a, c)
	}
	e.release(b, writer)
	for _, c := range behind {
		e.turn(a, c)
	}
}

// covers: W15, K6
func readersBatch(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	writer := e.claim(key)
	last := e.acquire(a, writer).Token
	var line []backend.Claim
	for i, m := range []backend.Mode{
		backend.Shared, backend.Shared, backend.Shared,
		backend.Exclusive, backend.Shared,
	} {
		c := e.inLine(key)
		c.Mode = m
		e.stand(b, c, i+1)
		line = append(line, c)
	}
	e.release(a, writer)
	e.stand(b, line[4], 2)
	e.stand(b, line[3], 1)
	for _, c := range line[:3] {
		last = e.above(last, e.turn(b, c))
	}
	for _, i := range []int{1, 0, 2} {
		e.stand(b, line[3], 1)
		e.release(a, line[i])
	}
	last = e.above(last, e.turn(b, line[3]))
	e.stand(b, line[4], 1)
	e.release(b, line[3])
	e.above(last, e.turn(b, line[4]))
}

// covers: B15, G6
func readersDeadOne(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	dead, alive := e.mode(key, backend.Shared, 0), e.mode(key, backend.Shared, 0)
	dead.TTL = e.short
	e.acquire(a, dead)
	e.acquire(b, alive)
	writer := e.inLine(key)
	e.forget(a, writer)
	e.refused(a, writer)
	for range 3 {
		e.renewed(b, alive)
		e.pause(e.short / 2)
	}
	e.refused(a, writer)
	e.release(b, alive)
	e.await("the writer to be let in", 2*e.short+patience, func() bool {
		_, err := a.TryAcquire(e.ctx, writer)
		return err == nil
	})
	e.lost("Renew by the reader whose lease ran out", a.Renew(e.ctx, dead))
}

// covers: W5, W15
func readersWriterLeaves(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.acquire(a, e.mode(key, backend.Shared, 0))
	writer, one, two := e.inLine(key), e.inLine(key), e.inLine(key)
	one.Mode, two.Mode = backend.Shared, backend.Shared
	e.stand(b, writer, 1)
	e.stand(b, one, 2)
	e.stand(b, two, 3)
	e.lost("Release of a claim in the queue", release(e.ctx, b, writer))
	e.turn(b, one)
	e.turn(b, two)
	e.acquire(a, e.mode(key, backend.Shared, 0))
}
