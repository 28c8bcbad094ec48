//go:build linux

package chaos

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/etcdbackend" // what stages have
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/linear"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/fence"
	_ "github.com/holdfast-go/holdfast/redisbackend"
	_ "github.com/holdfast-go/holdfast/redlock"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
	"github.com/holdfast-go/holdfast/waiting"
)

// workerEnv tells a process that it is a worker, and what to do.
const workerEnv = "HOLDFAST_CHAOS_WORKER"

// orders are what a worker process is told.
type orders struct {
	Name    string // of the process: beliefs and calls go to files of this name
	URL     string
	Dir     string // where the files are
	TTL     time.Duration
	Seed    uint64
	Keys    []string
	Own     string // with the number of a goroutine, the key that is mostly its own
	Lengthy int    // one hold of so many is long
	Scripts bool   // no native commands
	Data    bool   // the store keeps what it is given
	Removed string // the safeguard that this process does without, see safeguards_test.go
	Last    bool   // look for what is left in the store, and do nothing else
}

const (
	crew     = 4 // goroutines of a process
	permits  = 3
	readers  = 100              // beside one writer
	patience = 40 * time.Second // for a key, when there are no more faults; the machine may be busy
)

// What parent and worker say to each other, a line each.
const (
	// To the worker: there are no more faults; from it, by each goroutine: it got every key.
	sayCalm  = "calm"
	sayFound = "found " // from the worker: what is wrong
)

func init() { // before TestMain, and before anything is started
	text := os.Getenv(workerEnv)
	if text == "" {
		return
	}
	w := &worker{calmed: make(chan struct{})}
	err := json.Unmarshal([]byte(text), &w.orders)
	if err == nil {
		err = w.work()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A worker is what a worker process does.
type worker struct {
	orders
	b       backend.Backend
	redis   fence.RedisBackend // nil where it is none
	caps    backend.Capabilities
	locks   *locker.Client[struct{}]
	values  *locker.Store[int]
	rec     *history.Recorder
	journal *os.File // of calls
	calmed  chan struct{}

	mu   sync.Mutex // guards the rest, and one line at a time
	next int        // call
}

func (w *worker) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Println(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " | "))
}

// work does what the orders say, until the parent closes our input, by intent or by its death.
func (w *worker) work() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			if in.Text() == sayCalm {
				close(w.calmed)
			}
		}
		cancel()
		time.AfterFunc(patience, func() { os.Exit(2) })
	}()
	if err := w.open(ctx); err != nil {
		return err
	}
	if w.Last {
		w.leftover(ctx)
		return w.close()
	}
	var goroutines sync.WaitGroup
	for i := range crew {
		goroutines.Go(func() {
			w.run(ctx, fmt.Sprint(i), rand.New(rand.NewPCG(w.Seed, uint64(i))))
		})
	}
	goroutines.Wait()
	return w.close()
}

// open opens the store, when it answers, and the files.
func (w *worker) open(ctx context.Context) (err error) {
	for {
		if w.b, err = backend.Open(ctx, w.URL); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.TTL / 10):
		}
	}
	w.caps = w.b.Capabilities()
	w.redis, _ = w.b.(fence.RedisBackend)
	if w.Scripts && w.caps.State {
		w.b = scripts{w.b}
	}
	w.b = without(w.Removed, w.b)
	if w.rec, err = history.NewRecorder(filepath.Join(w.Dir, w.Name), w.Name); err != nil {
		return err
	}
	flags := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	if w.journal, err = os.OpenFile(filepath.Join(w.Dir, w.Name+callsFile), flags,
		0o600); err != nil {
		return err
	}
	cfg := locker.Config{TTL: w.TTL, Logger: slog.New(slog.DiscardHandler)}
	if w.Removed == sentAt {
		cfg.Wait.Mode = waiting.Poll // so that every grant is an answer, and none is handed over
	}
	if w.locks, err = locker.New(w.b, locker.Bare, cfg); err != nil || !w.caps.State {
		return err
	}
	w.values, err = locker.NewStore(w.b, locker.JSON[int](), cfg)
	return err
}

func (w *worker) close() error {
	if w.locks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience/2)
	defer cancel()
	err := w.locks.Shutdown(ctx)
	if w.values != nil {
		err = errors.Join(err, w.values.Close())
	}
	return errors.Join(err, w.b.Close(), w.rec.Close(), w.journal.Close())
}

// scripts is a backend whose every acquire asks for the stored value, which native commands cannot.
type scripts struct{ backend.Backend }

func (s scripts) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	c.Load = true
	return s.Backend.TryAcquire(ctx, c)
}

// run locks until ctx is done; once there are no more faults, each key once.
func (w *worker) run(ctx context.Context, name string, r *rand.Rand) {
	if w.locks == nil {
		return
	}
	for calm := false; !calm && ctx.Err() == nil; {
		w.once(ctx, name, r)
		select {
		case <-w.calmed:
			calm = true
		case <-time.After(fraction(r, 20*time.Millisecond)):
		}
	}
	for _, key := range w.Keys {
		w.patiently(ctx, key, name, r)
	}
	if ctx.Err() == nil {
		w.say(sayCalm)
		<-ctx.Done()
	}
}

// once locks one key in one of the ways that there are.
func (w *worker) once(ctx context.Context, name string, r *rand.Rand) {
	key := w.Keys[r.IntN(len(w.Keys))]
	if own := w.Own + name; key[0] == 'n' && slices.Contains(w.Keys, own) && r.IntN(32) > 0 {
		key = own
	}
	if key[0] == 'v' {
		w.update(ctx, key, locker.WaitLimit(4*w.TTL))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts, weight := w.options(key, r)
	asked := history.Now()
	var g *locker.Guard[struct{}]
	var err error
	switch r.IntN(6) {
	case 0:
		g, err = w.locks.TryLock(ctx, key, opts...)
	case 1: // cancelled at some moment
		stop := time.AfterFunc(fraction(r, w.TTL/4), cancel)
		g, err = w.locks.Lock(ctx, key, opts...)
		stop.Stop()
	default:
		g, err = w.locks.Lock(ctx, key, append(opts, locker.WaitLimit(4*w.TTL))...)
	}
	w.look(key, "lock", err)
	if err != nil {
		return
	}
	length := fraction(r, w.TTL/100)
	if r.IntN(w.Lengthy) == 0 {
		length = fraction(r, 3*w.TTL/2)
	}
	w.hold(g, key, name, weight, asked, length, r)
}

// patiently takes a key when there are no more faults.
func (w *worker) patiently(ctx context.Context, key, name string, r *rand.Rand) {
	if key[0] == 'v' {
		w.update(ctx, key, locker.WaitLimit(patience))
		return
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		opts, weight := w.options(key, r)
		asked := history.Now()
		g, err := w.locks.Lock(limited, key, opts...)
		if err == nil {
			w.hold(g, key, name, weight, asked, 0, r)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if limited.Err() != nil {
			w.say(sayFound+"no lock of %s for %v after the faults: %v", key, patience, err)
			return
		}
		w.look(key, "lock", err)
		time.Sleep(w.TTL / 20) // the store may have a connection left that is dead
	}
}

// look reports an error that no fault explains.
func (w *worker) look(key, op string, err error) {
	for _, never := range []error{backend.ErrForeign, backend.ErrUnsafe, errors.ErrUnsupported} {
		if errors.Is(err, never) {
			w.say(sayFound+"%s of %s: %v", op, key, err)
		}
	}
	var invalid *backend.InvalidError
	if errors.As(err, &invalid) {
		w.say(sayFound+"%s of %s: %v", op, key, err)
	}
}

// options are those that the key is for, and what a hold with them counts for.
func (w *worker) options(key string, r *rand.Rand) (opts []locker.Option, weight int) {
	switch key[0] {
	case 's':
		if r.IntN(3) > 0 {
			return []locker.Option{locker.Shared()}, 1
		}
		return nil, readers
	case 'p':
		n := 1
		if w.caps.Weight {
			n += r.IntN(permits)
		}
		return []locker.Option{locker.Permit(permits), locker.Weight(n)}, n
	}
	return nil, 1
}

// hold believes in a hold for a while, and makes use of it.
func (w *worker) hold(
	g *locker.Guard[struct{}], key, name string, weight int, asked, length time.Duration,
	r *rand.Rand,
) {
	token := g.Hold().Token
	belief, err := w.rec.Begin(history.Event{
		Worker: name, Key: key, Token: token, Weight: weight,
		Asked: asked,
	}, history.At(g.Until()))
	if err != nil {
		w.say(sayFound+"%v", err)
		return
	}
	fenced := key[0] == 'x' && token != 0
	value, admitted := 0, false
	if fenced {
		value, admitted = w.admitted(g, key, func(f *register) bool { return f.admit(token) })
		w.fenced(linear.Read, key, token, 0)
	}
	for end := time.After(length); end != nil; {
		select {
		case <-end:
			end = nil
		case <-g.Lost():
			end = nil
		// So that a belief is known for as long as it was when this process is killed.
		case <-time.After(w.TTL / 8):
			_ = belief.Renew(history.At(g.Until()))
		}
	}
	if admitted {
		w.admitted(g, key, func(f *register) bool { return f.write(token, value+1) })
		w.fenced(linear.Write, key, token, 0)
	}
	err = errors.Join(belief.End(history.At(g.Until())), g.Unlock())
	w.look(key, "unlock", err)
	if admitted && r.IntN(8) == 0 { // too late
		w.fenced(linear.Write, key, token, 1)
	}
}

// admitted asks the fence, and reports one that refuses who believes.
func (w *worker) admitted(g *locker.Guard[struct{}], key string,
	do func(f *register) bool,
) (value int, ok bool) {
	f, err := withRegister(filepath.Join(w.Dir, "fence-"+key), func(f *register) { ok = do(f) })
	switch {
	case err != nil:
		w.say(sayFound+"fence: %v", err)
	case !ok && g.Check(context.Background()) == nil:
		w.say(sayRefused+"token %d of %s by one of %d, though its holder believes", g.Hold().Token,
			key, f.Token)
	}
	return f.Value, ok
}

// sayRefused is said of a fence that refused one who believes: it is wrong where belief is
// promised.
const sayRefused = "refused "

// fenced reads or writes what a token of the key protects in the Redis that has the lock.
func (w *worker) fenced(verb linear.Verb, key string, token uint64, n int) {
	if w.redis == nil || !w.Data {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.TTL)
	defer cancel()
	op := linear.Op{Verb: verb, Key: key, Token: token}
	source := "return redis.call('GET', KEYS[1])"
	if verb == linear.Write {
		op.Value = int(token%1e9)*10 + n
		source = "redis.call('SET', KEYS[1], ARGV[1])"
	}
	call := w.begin(history.Now())
	if verb == linear.Write {
		call.note(op) // from now on it may be executed
	}
	reply, err := w.redis.Fenced(ctx, key, token, source,
		[]string{"holdfast:{" + key + "}register"}, []string{strconv.Itoa(op.Value)})
	if text, ok := reply.(string); ok && verb == linear.Read {
		op.Value, _ = strconv.Atoi(text)
	}
	switch {
	case err == nil:
		call.end(op, yes)
	case backend.AnswerOf(err) != backend.Unknown:
		call.end(op, no)
	}
}

// update adds one to a stored value.
func (w *worker) update(ctx context.Context, key string, limit locker.Option) {
	call := w.begin(history.Now())
	op := linear.Op{Verb: linear.Swap, Key: key}
	err := w.values.Update(ctx, key, func(_ context.Context, v int) (int, error) {
		op.Old, op.Value = v, v+1
		call.note(op)
		return v + 1, nil
	}, limit)
	w.look(key, "update", err)
	switch {
	case op.Value == 0:
	case err == nil:
		call.end(op, yes)
	case !errors.Is(err, locker.ErrUnknown):
		call.end(op, no)
	}
}

// leftover reports what is still held or waited for when all others have ended.
func (w *worker) leftover(ctx context.Context) {
	until := time.Now().Add(10*w.TTL + patience/4) // those that were killed wait for a while
	for _, key := range w.Keys {
		for {
			err := w.free(ctx, key)
			if err == nil {
				break
			}
			if time.Now().After(until) {
				w.say(sayFound+"left in the store: %s: %v", key, err)
				break
			}
			time.Sleep(w.TTL / 20)
		}
	}
}

func (w *worker) free(ctx context.Context, key string) error {
	var state backend.State
	var err error
	if w.caps.Inspect {
		state, err = w.locks.Inspect(ctx, key)
	}
	if n := len(state.Holders) + len(state.Waiters); n > 0 {
		err = fmt.Errorf("%+v", state)
	}
	if err == nil {
		var g *locker.Guard[struct{}]
		if g, err = w.locks.TryLock(ctx, key); err == nil {
			err = g.Unlock()
		}
	}
	return err
}

// fraction draws a part of d.
func fraction(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Float64() * float64(d))
}

// What became of a call; without a word, nobody knows.
const (
	yes = "yes"
	no  = "no"
)

// A callLine is a line of a worker's journal of calls.
type callLine struct {
	ID         string
	Op         linear.Op
	Begin, End time.Duration
	Verdict    string
}

const callsFile = ".calls"

// A call is one that is under way.
type call struct {
	w     *worker
	id    string
	began time.Duration
}

func (w *worker) begin(at time.Duration) call {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	return call{w, fmt.Sprintf("%s.%d.%d", w.Name, os.Getpid(), w.next), at}
}

// note says that op may be executed from now on, and end what became of it.
func (c call) note(op linear.Op) { c.write(callLine{ID: c.id, Op: op, Begin: c.began}) }

func (c call) end(op linear.Op, verdict string) {
	c.write(callLine{ID: c.id, Op: op, Begin: c.began, End: history.Now(), Verdict: verdict})
}

func (c call) write(l callLine) {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = c.w.journal.Write(append(text, '\n'))
	}
	if err != nil {
		c.w.say(sayFound+"%v", err)
	}
}

// readCalls joins journals. A call without a verdict may have its effect at any time; one with a no
// has none.
func readCalls(paths ...string) ([]linear.Call, error) {
	lines := map[string]callLine{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			var l callLine
			if !strings.HasSuffix(line, "\n") {
				continue // cut short by a kill
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				return nil, err
			}
			l.Verdict = cmp.Or(l.Verdict, lines[l.ID].Verdict)
			lines[l.ID] = l
		}
	}
	var calls []linear.Call
	for _, l := range lines {
		c := linear.Call{Op: l.Op, Begin: l.Begin, End: l.End}
		switch l.Verdict {
		case no:
			continue
		case "":
			c.Unknown, c.End = true, linear.Never
		}
		calls = append(calls, c)
	}
	return calls, nil
}
