package redissim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/smallredis"
)

// A link is a client's network: what a client library is elsewhere. Each request has a connection
// of its own, so requests overtake each other.
type link struct {
	c        *client
	to       []*server     // the primaries
	requests time.Duration // the time-out of each
}

// named is what the client asks for, in the history. Nodes of a quorum are asked for the same.
func (l link) named(what string) string {
	if l.c.w.kind.quorum {
		what = fmt.Sprintf("node %d: %s", l.to[0].index, what)
	}
	return fmt.Sprintf("client %d: %s", l.c.index, anonymous(what))
}

var errRefused = errors.New("connection refused")

// do sends one request to a server and waits for what comes back.
func (l link) do(ctx context.Context, s *server, name, id string,
	execute func(*server) (any, error),
) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, l.requests)
	defer cancel()
	type result struct {
		reply any
		err   error
	}
	answer := make(chan result, 1)
	w := l.c.w
	name = l.named(name)
	worker, _ := ctx.Value(workerKey{}).(string)
	w.net.submit(name, worker, id, func(r *rand.Rand) {
		w.net.note("%s: asks %s", name, worker)
		there, back := w.delay(r), w.delay(r)
		fate := r.Float64()
		if w.quiet {
			fate = 1
		}
		late, reset := fraction(r, w.ttl), fraction(r, l.requests)
		life := l.c.connect(s, fate > 0.5 && fate < 0.52)
		back2 := func(res result) {
			at := time.Now().Add(back)
			if !w.quiet && r.Float64() < w.stops {
				l.c.pause(at.Add(fraction(r, 2*w.ttl)))
			}
			w.net.at(l.c.awakeAt(at), func() {
				w.net.note("%s: hears", name)
				answer <- res
			})
		}
		var arrive func()
		arrive = func() {
			on := s.of(l.c.index)
			switch {
			case on.down:
				back2(result{nil, &redis.ConnectError{Err: errRefused}})
				return
			case on.lives != life: // the connection went with the process
				back2(result{nil, io.ErrUnexpectedEOF})
				return
			case time.Now().Before(on.paused):
				w.net.at(on.paused.Add(time.Duration(1+r.IntN(1000))), arrive)
				return
			}
			reply, err := execute(on)
			w.net.note("%s = %s %v", name, shown(reply), err)
			if fate < w.lossy*2 { // the reply is lost
				if reset < l.requests/2 {
					w.net.at(l.c.awakeAt(time.Now().Add(reset)), func() {
						answer <- result{nil, io.ErrUnexpectedEOF}
					})
				}
				return
			}
			back2(result{reply, err})
		}
		switch {
		case fate < w.lossy: // the request is lost
			w.net.note("%s is lost", name)
			if reset < l.requests/2 {
				w.net.at(l.c.awakeAt(time.Now().Add(reset)), func() {
					answer <- result{nil, io.ErrUnexpectedEOF}
				})
			}
		case fate > 1-w.lossy && fate < 1: // it is very late
			w.net.at(l.c.awakeAt(time.Now()).Add(late), arrive)
		default:
			w.net.at(l.c.awakeAt(time.Now()).Add(there), arrive)
		}
	})
	select {
	case a := <-answer:
		return a.reply, a.err
	case <-ctx.Done():
	}
	w.net.turn(name+": gives up", worker, id) // many may at one instant
	select {
	case a := <-answer:
		return a.reply, a.err
	default:
		return nil, ctx.Err()
	}
}

// anonymous has "#" for the names that claims made up, whole or their end as a quorum shows it, and
// for what else a seed does not decide: the process. Every request passes here, so it is no regular
// expression.
func anonymous(s string) string {
	const name, end = 22, 8 // bytes
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if !wordly[s[i]] {
			if n := process(s[i:]); n > 0 {
				b = append(b, '#')
				i += n
				continue
			}
			b = append(b, s[i])
			i++
			continue
		}
		from := i
		for i < len(s) && wordly[s[i]] {
			i++
		}
		switch n := i - from; {
		case n >= name:
			b = append(b, '#')
		case n == end && from > 0 && s[from-1] == '/' && i < len(s) && s[i] == '"':
			b = append(b, '#')
		default:
			b = append(b, s[from:i]...)
		}
	}
	return string(b)
}

// wordly are the bytes of names.
var wordly = func() (is [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-" {
		is[c] = true
	}
	return is
}()

// process returns how much at the beginning of s names the process, as a Meta does.
func process(s string) int {
	for _, member := range []string{`"host":"`, `"s":"`} {
		if rest, ok := strings.CutPrefix(s, member); ok {
			return len(member) + strings.IndexByte(rest, '"') + 1
		}
	}
	const pid = `"pid":`
	if rest, ok := strings.CutPrefix(s, pid); ok {
		return len(pid) + len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	}
	return 0
}

func shown(reply any) string { return anonymous(fmt.Sprint(reply)) }

func (l link) Run(ctx context.Context, r redis.Request) (any, int, error) {
	verb, id := scriptNames[r.Script.SHA1()], ""
	words := r.Args
	if verb == "DIALECT" {
		verb, words = strings.ToUpper(words[0]), words[1:]
	}
	if len(words) > 0 {
		id = words[0]
	}
	// of the claims of a request for many keys, whose tail begins with the margin and the name
	var ids []string
	switch verb {
	case "TRYACQUIREALL":
		for i := 2; i < len(words); i += 3 {
			ids = append(ids, strings.Fields(words[i])[1])
		}
		id = ids[0]
	case "TRYRELEASEALL":
		for pair := range slices.Chunk(words, 2) {
			ids = append(ids, pair[0])
		}
	}
	reply, err := l.at(ctx, r.Keys[0], verb+" "+r.Keys[0]+" "+strings.Join(r.Args, " "), id,
		func(s *server) (any, error) {
			reply, err := s.redis.Eval(l.c.w.v.edited(r.Script.Source()), r.Keys, r.Args)
			s.expires(verb, r.Keys)
			switch {
			case err != nil:
			case verb == "TRYACQUIREALL":
				for i := range tokens(reply) {
					s.executed("ACQUIRE", ids[i], true)
				}
				s.w.many++
			case verb == "TRYRELEASEALL":
				for i, done := range tokens(reply) {
					if done == int64(1) {
						s.executed("RELEASE", ids[i], true)
					}
				}
			case verb == "RELEASEALL":
				for pair := range slices.Chunk(r.Args[1:], 2) {
					s.executed("RELEASE", pair[0], true)
				}
			default:
				s.executed(verb, id, grant(reply))
			}
			return reply, err
		})
	return reply, 0, err
}

// tokens are what a script answers after a yes.
func tokens(reply any) []any {
	if !grant(reply) {
		return nil
	}
	return reply.([]any)[1:]
}

// grant reports whether the reply to an acquire is one.
func grant(reply any) bool {
	switch r := reply.(type) {
	case int64:
		return true
	case []any:
		return len(r) > 0 && (r[0] == int64(1) || r[0] == int64(10))
	}
	return false
}

func (l link) Set(ctx context.Context, key string, args ...string) (bool, error) {
	words := append([]string{"SET", key}, args...)
	verb, id := "", ""
	if held := strings.Fields(args[0]); len(held) > 3 {
		verb, id = "ACQUIRE", held[3]
	} else if held := strings.Fields(args[2]); len(held) > 3 {
		verb, id = "RELEASE", held[3]
	}
	if f := l.c.w.v.set; f != nil {
		words = f(words)
	}
	reply, err := l.at(ctx, key, strings.Join(words, " "), id, func(s *server) (any, error) {
		reply, err := s.redis.Do(words...)
		if reply != nil {
			s.executed(verb, id, true)
			s.w.natives++
		}
		return reply, err
	})
	return reply != nil, err
}

func (l link) Info(ctx context.Context, section string) (infos []string, err error) {
	for _, s := range l.to {
		reply, err := l.do(ctx, s, fmt.Sprint("INFO ", s.index), "", func(s *server) (any, error) {
			return s.redis.Do("INFO", section)
		})
		if err != nil {
			return nil, err
		}
		infos = append(infos, reply.(string))
	}
	return infos, nil
}

func (l link) Scan(context.Context, string, func([]string) bool) error {
	return errors.ErrUnsupported
}

func (l link) Track(context.Context, string, func()) error { return errors.ErrUnsupported }

func (l link) Check(ctx context.Context) error {
	_, err := l.do(ctx, l.to[0], "PING", "", func(s *server) (any, error) {
		return s.redis.Do("PING")
	})
	return err
}

func (l link) Explain(err error) redis.Failure {
	var reply smallredis.Error
	if errors.As(err, &reply) {
		return redis.Failure{Reply: string(reply)}
	}
	return redis.Failure{Unsent: redis.NotMade(err)}
}

// Messages returns a connection for messages.
func (l link) Messages(context.Context) redis.Messages {
	s := l.to[0]
	m := &messages{
		l: l, s: s, on: s.of(l.c.index), inbox: make(chan redis.Message, 1<<12),
		broken: make(chan struct{}),
	}
	return m
}

// messages is a connection for messages. What comes on it keeps its order.
type messages struct {
	l        link
	s, on    *server
	inbox    chan redis.Message
	broken   chan struct{}
	dead     bool     // only the network's goroutine looks
	channels []string // subscribed
	last     time.Time
}

func (m *messages) ask(ctx context.Context, name string, f func()) error {
	_, err := m.l.do(ctx, m.s, name, "", func(*server) (any, error) {
		select {
		case <-m.broken:
			return nil, io.EOF
		default:
		}
		f()
		return nil, nil
	})
	return err
}

func (m *messages) Subscribe(ctx context.Context, channels ...string) error {
	slices.Sort(channels)
	w := m.l.c.w
	return m.ask(ctx, "SUBSCRIBE "+strings.Join(channels, " "), func() {
		if !slices.Contains(w.inboxes, m) && !m.dead {
			w.inboxes = append(w.inboxes, m)
			slices.SortStableFunc(w.inboxes, func(a, b *messages) int {
				return a.l.c.index - b.l.c.index
			})
		}
		for _, c := range channels {
			m.channels = append(m.channels, c)
			m.send(redis.Message{Kind: redis.Confirmed, Channel: c})
		}
	})
}

func (m *messages) Unsubscribe(ctx context.Context, channels ...string) error {
	slices.Sort(channels)
	return m.ask(ctx, "UNSUBSCRIBE "+strings.Join(channels, " "), func() {
		m.channels = slices.DeleteFunc(m.channels, func(c string) bool {
			return slices.Contains(channels, c)
		})
	})
}

func (m *messages) Ping(ctx context.Context) error {
	return m.ask(ctx, "PING messages", func() { m.send(redis.Message{}) })
}

// send has the client receive a message, after those that were sent before it.
func (m *messages) send(message redis.Message) {
	w := m.l.c.w
	r := rand.New(rand.NewPCG(w.seed, uint64(time.Since(w.net.start))+uint64(m.l.c.index)))
	at := time.Now().Add(w.delay(r))
	if !at.After(m.last) {
		at = m.last.Add(1)
	}
	m.last = at
	w.net.at(m.l.c.awakeAt(at), func() {
		if !m.dead {
			w.net.note("client %d is told %s: %s", m.l.c.index, anonymous(message.Channel),
				anonymous(message.Payload))
			m.inbox <- message
		}
	})
}

func (m *messages) Receive(ctx context.Context) (redis.Message, error) {
	select { // what came before the end is first: both may be there when somebody begins to receive
	case message := <-m.inbox:
		return message, nil
	default:
	}
	select {
	case message := <-m.inbox:
		return message, nil
	case <-m.broken:
		return redis.Message{}, io.EOF
	case <-ctx.Done():
		return redis.Message{}, ctx.Err()
	}
}

// breakIt ends the connection, as the server or the network does.
func (m *messages) breakIt() {
	if !m.dead {
		m.dead = true
		close(m.broken)
	}
}

// Close ends the connection as the client does.
func (m *messages) Close() error {
	w := m.l.c.w
	w.net.submit(m.l.named("closes"), "", "", func(*rand.Rand) {
		w.net.at(time.Now(), func() {
			w.net.note("client %d closes a connection for messages", m.l.c.index)
			m.breakIt()
			w.inboxes = slices.DeleteFunc(w.inboxes, func(o *messages) bool { return o == m })
		})
	})
	return nil
}

// sources are the scripts that a variant may edit, and scriptNames are theirs for the history.
var (
	sources     []string
	scriptNames = named()
)

func named() map[string]string {
	names := map[string]string{
		script.Probe.SHA1(): "PROBE", script.Mark.SHA1(): "MARK",
		script.Saved.SHA1(): "SAVED",
	}
	own, _ := script.NewLayout("", 0, 0)
	dialect, _ := script.Dialect("", 0, 0)
	var c backend.Claim
	for name, r := range map[string]script.Request{
		"ACQUIRE": own.Acquire(c), "RENEW": own.Renew(c), "RELEASE": own.Release(c),
		"TRYACQUIREALL": own.TryAcquireAll(nil), "TRYRELEASEALL": own.TryReleaseAll(nil),
		"RELEASEALL": own.ReleaseAll([]backend.Claim{c}), "HEARTBEAT": own.Heartbeat(),
		"INSPECT": own.Inspect(),
		"DIALECT": dialect.Acquire(c), // one for all verbs
	} {
		names[r.Script.SHA1()] = name
		sources = append(sources, r.Script.Source())
	}
	sources = append(sources, script.Fenced("").Source())
	return names
}
