package redlock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

func init() { backend.Register("redlock", open) }

// mostNodes bounds the nodes of a URL. More do not make a lock safer, and each request goes to all.
const mostNodes = 25

// open opens the nodes of a URL. A majority must answer now; one that does not is tried again in
// the background. A node's own refusal (a bad URL, wrong credentials, an unsafe setting) is an
// error, however many others are well.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	urls, cfg, err := parse(u)
	if err != nil {
		return nil, err
	}
	nodes := make([]*node, len(urls))
	errs := make([]error, len(urls))
	limit := 2 * max(probeTimeout, cfg.NodeTimeout) // one that hangs must not take the time of all
	var opening sync.WaitGroup
	for i, raw := range urls {
		open := func(ctx context.Context) (backend.Backend, error) { return backend.Open(ctx, raw) }
		nodes[i] = &node{name: backend.Redact(raw), open: open}
		opening.Go(func() {
			limited, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			nodes[i].b, errs[i] = open(limited)
			// No ctx of the caller has ended. safeguard: node-hangs
			if errs[i] != nil && limited.Err() != nil && ctx.Err() == nil {
				errs[i] = fmt.Errorf("%w: %w", backend.ErrUnavailable, timeoutError{limit})
			}
		})
	}
	opening.Wait()
	r, err := assemble(ctx, nodes, errs, cfg)
	if err != nil {
		for _, n := range nodes {
			if n.b != nil {
				_ = n.b.Close() // safeguard: nodes-closed
			}
		}
		return nil, err
	}
	return r, nil
}

func assemble(ctx context.Context, nodes []*node, errs []error, cfg Config) (*Backend, error) {
	votes := (&Backend{nodes: nodes, quorum: len(nodes)/2 + 1}).newVotes()
	for i, err := range errs {
		if backend.Refused(err) { // safeguard: denied-at-open
			return nil, fmt.Errorf("node %d: %w", i+1, err)
		}
		votes.count(i, err)
	}
	if votes.yes < votes.quorum {
		return nil, votes.inconclusive()
	}
	r, err := newBackend(ctx, nodes, cfg)
	if err != nil {
		return nil, err
	}
	r.owned = true
	return r, nil
}

// parse reads a URL as the package comment describes it. Errors say nothing of the nodes' URLs,
// which may have passwords.
func parse(u *url.URL) (nodes []string, cfg Config, err error) {
	invalid := func(field, value, reason string) error {
		return &backend.InvalidError{Field: field, Value: value, Reason: reason}
	}
	if u.Host != "" || u.User != nil || u.Fragment != "" || (u.Path != "" && u.Path != "/") {
		return nil, cfg, invalid("url", "",
			"redlock:// takes its nodes as parameters, percent-encoded: redlock://?node=…&node=…")
	}
	for name, values := range u.Query() {
		if name == "node" {
			nodes = values
			continue
		}
		if len(values) != 1 {
			return nil, cfg, invalid(name, "", "is given more than once")
		}
		switch name {
		case "node_timeout", "node-timeout":
			cfg.NodeTimeout, err = time.ParseDuration(values[0])
		case "drift":
			cfg.Drift, err = strconv.ParseFloat(values[0], 64)
		default:
			return nil, cfg, invalid("url", "",
				"has an unknown parameter (known: node, node_timeout, drift);"+
					" a & or # in a node's URL must be percent-encoded")
		}
		if err != nil {
			return nil, cfg, invalid(name, "",
				"is not a number with a unit, such as 100ms, or a fraction")
		}
	}
	switch n := len(nodes); {
	case n == 0:
		return nil, cfg, invalid("url", "",
			"names no nodes, as in "+
				"redlock://?node=redis://a:6379&node=redis://b:6379&node=redis://c:6379")
	case n > mostNodes:
		return nil, cfg, invalid("node", strconv.Itoa(n)+" of them",
			"must be 1 to "+strconv.Itoa(mostNodes))
	}
	for i, raw := range nodes {
		node, err := backend.ParseURL(raw)
		if err != nil {
			var bad *backend.InvalidError
			if errors.As(err, &bad) {
				bad.Field = "node " + strconv.Itoa(i+1)
			}
			return nil, cfg, err
		}
		if node.Scheme == "redlock" {
			return nil, cfg, invalid("node "+strconv.Itoa(i+1), "",
				"is a redlock:// itself: a majority of majorities is not one of all nodes")
		}
	}
	cfg, err = cfg.withDefaults()
	return nodes, cfg, err
}
