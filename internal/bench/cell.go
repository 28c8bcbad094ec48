package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/server"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
	"github.com/holdfast-go/holdfast/internal/bench/worker"
)

// Metrics are what one cell has measured, by name: see columns.
type Metrics map[string]float64

// A participant is an implementation, in a build of holdfast.
type participant struct {
	name    string // the implementation's, or "before:" and that
	impl    impl.Impl
	program string // whose workers it has
}

// cell measures one participant.
func (b *bench) cell(s scenario, n int, p participant) (m Metrics, err error) {
	nodes, err := b.fleet.get(s.servers, s.nodes)
	if err != nil {
		return nil, err
	}
	addr, err := addrs(nodes, s.roundTrip)
	if err != nil {
		return nil, err
	}
	order := worker.Order{
		Mode: s.mode, Impl: p.impl.Name, Addr: addr, N: n, Keys: n, Gap: s.gap,
		Warm: max(s.length/5, 80*ms), Profile: b.profile,
	}
	if b.fleet.pinned {
		if order.CPUs = []int{clientCPU}; s.clientCPUs > 1 {
			order.CPUs = append(order.CPUs, serverCPU)
		}
	}
	c := &cell{scenario: s, p: p, smoke: b.length > 0, nodes: nodes, order: order}
	defer c.end()
	switch s.mode {
	case worker.Wait:
		m, err = c.waiters(n)
	case worker.Once:
		m, err = c.leftovers()
	default:
		m, err = c.load()
	}
	c.end()
	for name, x := range m {
		if x == 0 && (name == "errors" || name == "faults") {
			delete(m, name)
			continue
		}
		// The raw run is to be read.
		m[name], _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	}
	return m, errors.Join(err, flush(nodes))
}

// A cell is what measures one participant of a scenario.
type cell struct {
	scenario
	p       participant
	smoke   bool
	nodes   []*node
	order   worker.Order
	workers []*process
}

func (c *cell) end() {
	for _, w := range c.workers {
		w.end()
	}
	c.workers = nil
}

// start starts a worker and waits until it is ready.
func (c *cell) start(orders ...worker.Order) error {
	first := len(c.workers)
	for _, o := range orders {
		w, err := startWorker(c.p.program, o)
		if err != nil {
			return err
		}
		c.workers = append(c.workers, w)
	}
	for _, w := range c.workers[first:] {
		if line, err := w.line(30 * time.Second); err != nil || string(line) != "ready\n" {
			return fmt.Errorf("worker: %q %w%s", line, err, w.said())
		}
	}
	return nil
}

// load lets the workers begin and end together.
func (c *cell) load() (Metrics, error) {
	// One after the other, whoever else is many.
	if c.p.impl.Name == "ping" || c.p.impl.Name == "signal" {
		c.order.Mode, c.order.N, c.processes = worker.Load, 1, 1
	}
	if c.oneKey || c.order.N == 1 {
		c.order.Keys = 1
	}
	if c.processes > 1 {
		dir, err := os.MkdirTemp("", "holdfast-bench-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		c.order.Judges = filepath.Join(dir, "judges")
	}
	var orders []worker.Order
	for range c.processes {
		orders = append(orders, c.order)
	}
	if err := c.start(orders...); err != nil {
		return nil, err
	}
	heal, err := strike(c.fault, c.nodes)
	if err != nil {
		return nil, err
	}
	live := alive(c.fault, c.nodes)
	before, err := counters(live)
	err = errors.Join(err, c.next())
	if c.fault == paused {
		time.Sleep(c.length / 3)
		err = errors.Join(err, c.nodes[0].signal(syscall.SIGSTOP))
		time.Sleep(100 * ms)
		err = errors.Join(err, c.nodes[0].signal(syscall.SIGCONT))
	}
	time.Sleep(c.length)
	after, err2 := counters(live)
	if err := errors.Join(err, err2, c.next(), heal()); err != nil {
		return nil, err
	}
	results, err := c.answers()
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		if r.Errors > 0 {
			fmt.Fprintf(os.Stderr, "%s, %s: %d errors, the last: %s\n", c.name, c.p.name, r.Errors,
				r.LastError)
		}
	}
	m := metrics(results, after.Since(before), c.p.impl)
	if !c.oneKey {
		delete(m, "jain")
		delete(m, "share")
	}
	if c.processes == 1 {
		delete(m, "processes")
	}
	return m, nil
}

// next tells the workers to go on.
func (c *cell) next() error {
	var errs []error
	for _, w := range c.workers {
		_, err := io.WriteString(w.in, "next\n")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *cell) answers() ([]worker.Result, error) {
	all := make([]worker.Result, len(c.workers))
	for i, w := range c.workers {
		line, err := w.line(15 * time.Second)
		if err == nil {
			err = json.Unmarshal(line, &all[i])
		}
		if err != nil {
			return nil, fmt.Errorf("a worker's answer: %w%s", err, w.said())
		}
	}
	return all, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// metrics are the figures of workers that ran at the same time.
func metrics(results []worker.Result, c server.Counters, im impl.Impl) Metrics {
	var wait stats.Hist
	var shares, processes []int64
	m := Metrics{"errors": 0, "faults": 0}
	var cpu time.Duration
	allocs, ops := 0.0, 0.0
	for _, r := range results {
		sum := int64(0)
		for _, s := range r.Shares {
			sum += s
		}
		shares, processes = append(shares, r.Shares...), append(processes, sum)
		m["rate"] += float64(sum) / r.Elapsed.Seconds()
		m["errors"] += float64(r.Errors)
		m["faults"] = max(m["faults"], float64(r.Faults)) // they share their judge
		wait.Merge(r.Wait)
		ops += float64(sum)
		cpu += r.CPU
		allocs += r.Allocs
	}
	m["jain"], m["share"], m["processes"] = stats.Jain(shares), stats.MaxMin(shares),
		stats.MaxMin(processes)
	m["p50"], m["p99"], m["max"] = micros(wait.Quantile(0.5)), micros(wait.Quantile(0.99)),
		micros(wait.Max())
	if ops > 0 {
		m["sent"], m["executed"] = c.Total(im.Sent...)/ops, c.Total()/ops
		m["client"], m["server"], m["allocs"] = micros(cpu)/ops, micros(c.CPU)/ops, allocs/ops
		m["cpu"] = m["client"] + m["server"]
	}
	return m
}

// waiters measures what a process of many waiters costs while nothing happens. What the holder
// sends is measured before they come, and taken off.
func (c *cell) waiters(keys int) (Metrics, error) {
	many, settle := 5000, 2*time.Second
	if c.name == "S6-modes" {
		many = 3000
	}
	if c.smoke { // the smoke test
		many, keys, settle = 20, min(keys, 20), c.length
	}
	holder, waiting := c.order, c.order
	holder.Mode, holder.N = worker.Hold, keys
	// In every mode, an exclusive holder is in the way.
	holder.Impl, _, _ = strings.Cut(holder.Impl, "-")
	holder.Impl += impl.Holder
	waiting.N, waiting.Keys = many, keys
	if err := c.start(holder); err != nil {
		return nil, err
	}
	alone, before, err := c.watch()
	if err != nil {
		return nil, err
	}
	if err := c.start(waiting); err != nil {
		return nil, err
	}
	time.Sleep(settle)
	busy, after, err := c.watch()
	if err != nil {
		return nil, err
	}
	both := c.workers
	c.workers = both[1:] // the holder is left alone
	defer func() { c.workers = both }()
	if err := errors.Join(c.next(), c.next()); err != nil { // begin, and end
		return nil, err
	}
	results, err := c.answers()
	if err != nil {
		return nil, err
	}
	u := results[0]
	if u.Waiting != many {
		return nil, fmt.Errorf("%d of %d still wait", u.Waiting, many)
	}
	seconds := c.length.Seconds()
	return Metrics{
		"heap": u.Heap, "stack": u.Stack, "memory": u.Heap + u.Stack, "goroutines": u.Goroutines,
		"holder": alone.Total(c.p.impl.Sent...) / seconds,
		"idle":   max(busy.Total(c.p.impl.Sent...)-alone.Total(c.p.impl.Sent...), 0) / seconds,
		"conns":  float64(after.Clients - before.Clients),
		"bytes":  (after.Memory - before.Memory) / float64(many),
	}, nil
}

// watch counts for the length of a cell, and returns what was counted and the counters at its end.
func (c *cell) watch() (counted, end server.Counters, err error) {
	before, err := counters(c.nodes)
	if err != nil {
		return counted, end, err
	}
	time.Sleep(c.length)
	end, err = counters(c.nodes)
	return end.Since(before), end, err
}

// leftovers measures what released keys leave on the server, and for how long at most.
func (c *cell) leftovers() (Metrics, error) {
	if c.smoke {
		c.order.N = 100
	}
	before, err := counters(c.nodes)
	if err != nil {
		return nil, err
	}
	if err := c.start(c.order); err != nil {
		return nil, err
	}
	var longest time.Duration
	for range 50 {
		ttl, err := c.nodes[0].redis.TTL()
		if err != nil {
			return nil, err
		}
		longest = max(longest, ttl)
	}
	after, err := counters(c.nodes)
	return Metrics{
		"bytes": (after.Memory - before.Memory) / float64(c.order.N), "seconds": longest.Seconds(),
	}, err
}

// A process is a worker, seen from its parent.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

func startWorker(program string, o worker.Order) (*process, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	w := &process{cmd: exec.CommandContext(context.Background(), program)}
	w.cmd.Stderr = &w.stderr
	w.cmd.Env = append(os.Environ(), worker.Env+"="+string(text))
	w.cmd.SysProcAttr = server.DieWithParent
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(out)
	return w, w.cmd.Start()
}

// line reads what the worker says next. One that says nothing for so long is killed.
func (w *process) line(limit time.Duration) ([]byte, error) {
	late := time.AfterFunc(limit, func() { _ = w.cmd.Process.Kill() })
	line, err := w.out.ReadBytes('\n')
	if !late.Stop() {
		err = fmt.Errorf("%s %v", silent, limit)
	}
	return line, err
}

const silent = "it said nothing for"

// said is the end of what it has logged. It ends the process, which has failed.
func (w *process) said() string {
	w.end()
	text := w.stderr.String()
	return " " + text[max(0, len(text)-400):]
}

// end kills the worker: what it still does is of no interest.
func (w *process) end() {
	if w.cmd.ProcessState == nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait() // killed
	}
}
