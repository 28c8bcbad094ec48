package impl

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// rawQueue is how many commands may wait for a node. One that has more is passed over: it hangs.
const rawQueue = 512

var errNoMajority = errors.New("no majority, and a raw client does not ask again")

// A rawRedlock is what nobody beats who asks five nodes: it has a line of commands for each, sends what has gathered in one
// write, and goes on at the majority. No tokens, no renewal, no wait.
type rawRedlock struct {
	nodes  []*rawNode
	cad    string // the release's SHA
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

type rawNode struct {
	c     rueidis.Client
	queue chan rawCommand
}

type rawCommand struct {
	rueidis.Completed
	answer chan<- bool
}

func openRawRedlock(ctx context.Context, addrs string) (Client, error) {
	r := &rawRedlock{}
	background, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	for addr := range strings.SplitSeq(addrs, ",") {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
		if err == nil {
			n := &rawNode{c, make(chan rawCommand, rawQueue)}
			r.nodes = append(r.nodes, n)
			r.tasks.Go(func() { n.send(background) })
			r.cad, err = c.Do(ctx, c.B().ScriptLoad().Script(compareAndDelete).Build()).ToString()
		}
		if err != nil {
			_ = r.Close()
			return nil, err
		}
	}
	return r, nil
}

func (r *rawRedlock) Close() error {
	r.cancel()
	for _, n := range r.nodes {
		n.c.Close()
	}
	r.tasks.Wait()
	return nil
}

// send keeps the order of commands, and sends as many at once as have come meanwhile.
func (n *rawNode) send(ctx context.Context) {
	var batch []rueidis.Completed
	var answers []chan<- bool
	for {
		batch, answers = batch[:0], answers[:0]
		select {
		case <-ctx.Done():
			return
		case first := <-n.queue:
			batch, answers = append(batch, first.Completed), append(answers, first.answer)
		}
		for range len(n.queue) {
			next := <-n.queue
			batch, answers = append(batch, next.Completed), append(answers, next.answer)
		}
		for i, reply := range n.c.DoMulti(ctx, batch...) {
			answers[i] <- reply.Error() == nil // nil for a taken key is an error, too
		}
	}
}

// ask sends a command to every node, and reports whether a majority has done it.
func (r *rawRedlock) ask(ctx context.Context, command func(rueidis.Client) rueidis.Completed) bool {
	answers := make(chan bool, len(r.nodes))
	for _, n := range r.nodes {
		select {
		case n.queue <- rawCommand{command(n.c), answers}:
		default:
			answers <- false
		}
	}
	for yes, no := 0, 0; ; {
		select {
		case ok := <-answers:
			if ok {
				yes++
			} else {
				no++
			}
		case <-ctx.Done():
			return false
		}
		switch {
		case yes > len(r.nodes)/2:
			return true
		case no > len(r.nodes)/2:
			return false
		}
	}
}

func (r *rawRedlock) Lock(ctx context.Context, key string) (Held, error) {
	h := &rawRedlockHeld{r, ctx, key, rand.Text()}
	if !r.ask(ctx, func(c rueidis.Client) rueidis.Completed {
		return c.B().Set().Key(key).Value(h.id).Nx().PxMilliseconds(int64(TTL / time.Millisecond)).Build()
	}) {
		_ = h.Unlock()
		return nil, errNoMajority
	}
	return h, nil
}

type rawRedlockHeld struct {
	r       *rawRedlock
	ctx     context.Context
	key, id string
}

func (*rawRedlockHeld) Token() uint64 { return 0 }

func (h *rawRedlockHeld) Unlock() error {
	if !h.r.ask(h.ctx, func(c rueidis.Client) rueidis.Completed {
		return c.B().Evalsha().Sha1(h.r.cad).Numkeys(1).Key(h.key).Arg(h.id).Build()
	}) {
		return errNoMajority
	}
	return nil
}
