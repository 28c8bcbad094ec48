package impl

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/redis/rueidis"
)

func init() {
	register(Impl{
		Name: "raw-redlock", Role: Floor, Client: Rueidis, Sent: scripts[:2], Open: openRawRedlock,
		Settings: "no library: SET NX PX and compare-and-delete; a FIFO a node, sent in batches; " +
			"on at the majority",
	})
}

// rawQueue is how many commands may wait for a node. One that has more is passed over: it hangs.
const rawQueue = 512

var errNoMajority = errors.New("no majority, and a raw client does not ask again")

// A rawRedlock is what nobody beats who asks five nodes: it has a FIFO of commands for each, sends
// what has gathered in one write, and goes on at the majority. No tokens, no renewal, no wait.
type rawRedlock struct {
	nodes []*rawNode
	cad   string // the release's SHA
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
	for addr := range strings.SplitSeq(addrs, ",") {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
		if err != nil {
			return nil, err
		}
		n := &rawNode{c, make(chan rawCommand, rawQueue)}
		r.nodes = append(r.nodes, n)
		go n.send()
		if r.cad, err = c.Do(ctx,
			c.B().ScriptLoad().Script(compareAndDelete).Build()).ToString(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// send keeps the order of commands, and sends as many at once as have come meanwhile.
func (n *rawNode) send() {
	var batch []rueidis.Completed
	var answers []chan<- bool
	for {
		first := <-n.queue
		batch, answers = append(batch[:0], first.Completed), append(answers[:0], first.answer)
		for range len(n.queue) {
			next := <-n.queue
			batch, answers = append(batch, next.Completed), append(answers, next.answer)
		}
		for i, reply := range n.c.DoMulti(context.Background(), batch...) {
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
	id := rand.Text()
	unlock := func() error {
		if !r.ask(ctx, func(c rueidis.Client) rueidis.Completed {
			return c.B().Evalsha().Sha1(r.cad).Numkeys(1).Key(key).Arg(id).Build()
		}) {
			return errNoMajority
		}
		return nil
	}
	if !r.ask(ctx, func(c rueidis.Client) rueidis.Completed {
		return c.B().Set().Key(key).Value(id).Nx().PxMilliseconds(TTL.Milliseconds()).Build()
	}) {
		return nil, errors.Join(errNoMajority, unlock())
	}
	return &held{0, unlock}, nil
}
