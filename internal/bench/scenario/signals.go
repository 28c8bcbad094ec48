package scenario

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/redisd"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// runPing is the limit of everything that needs the server once an operation, one after the other.
func runPing(_ context.Context, env *Env, _ int) (Metrics, error) {
	c, err := redisd.Dial(env.Server.Addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return sample(env, 0, func() (time.Duration, error) {
		began := time.Now()
		_, err := c.Do("PING")
		return time.Since(began), err
	})
}

// runSignal is the limit of everything in which one client tells another through the server.
func runSignal(gap time.Duration) func(context.Context, *Env, int) (Metrics, error) {
	return func(_ context.Context, env *Env, _ int) (Metrics, error) {
		from, err := redisd.Dial(env.Server.Addr)
		if err != nil {
			return nil, err
		}
		defer from.Close()
		to, err := redisd.Dial(env.Server.Addr)
		if err != nil {
			return nil, err
		}
		defer to.Close()
		if _, err := to.Do("SUBSCRIBE", "signal"); err != nil {
			return nil, err
		}
		received := make(chan time.Time, 1)
		go func() {
			defer close(received)
			for {
				if _, err := to.Receive(); err != nil {
					return // closed
				}
				received <- time.Now()
			}
		}()
		return sample(env, gap, func() (time.Duration, error) {
			began := time.Now()
			if err := from.Send("PUBLISH", "signal", "x"); err != nil {
				return 0, err
			}
			at := <-received
			_, err := from.Receive() // the answer to the sender is not part of the signal
			return at.Sub(began), err
		})
	}
}

// sample repeats a measurement for the length of a cell, with pauses of gap.
func sample(env *Env, gap time.Duration, one func() (time.Duration, error)) (Metrics, error) {
	var h stats.Hist
	var sum time.Duration
	n := 0
	for end := time.Now().Add(env.Length); time.Now().Before(end); n++ {
		time.Sleep(gap)
		d, err := one()
		if err != nil {
			return nil, err
		}
		h.Add(d)
		sum += d
	}
	m := Metrics{"p50": micros(h.Quantile(0.5)), "p99": micros(h.Quantile(0.99)), "max": micros(h.Max()), "samples": float64(n)}
	if sum > 0 {
		m["rate"] = float64(n) / sum.Seconds()
	}
	return m, nil
}
