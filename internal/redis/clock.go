package redis

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

const (
	rateApart   = 1500 * time.Millisecond // between the two readings of a clock
	rateTries   = 5                       // for each reading, of which the quickest counts
	rateAllowed = 0.01                    // as holders allow for, see package locker
	rateStep    = 0.5                     // no clock is slewed by that much: it was set
)

// A reading is what a server's clock said between two times of this machine.
type reading struct{ sent, got, server time.Time }

// bound is how far a clock gained on this machine's between two readings, as a part of the time
// between them: from the least to the most that it can be. Each reading was made at some time
// between sent and got.
func bound(first, second reading) (least, most float64) {
	elapsed := second.sent.Sub(first.sent).Seconds()
	gained := second.server.Sub(first.server)
	least = (gained - second.got.Sub(first.sent)).Seconds() / elapsed
	most = (gained - second.sent.Sub(first.got)).Seconds() / elapsed
	return least, most
}

// clocks reads the clock of every primary, by the run that it is in. A server that does not tell,
// or not in time, has none.
func (s *Store) clocks(ctx context.Context) map[string]reading {
	best := map[string]reading{}
	for range rateTries {
		sent := time.Now()
		infos, err := s.info(ctx, "server")
		got := time.Now()
		if err != nil {
			break // with what there is
		}
		for _, info := range infos {
			v := server(info)
			us, err := strconv.ParseInt(v.text("server_time_usec"), 10, 64)
			r, known := best[v.text("run_id")]
			// safeguard: clock-quickest
			if err == nil && (!known || got.Sub(sent) < r.got.Sub(r.sent)) {
				best[v.text("run_id")] = reading{sent, got, time.UnixMicro(us)}
			}
		}
	}
	return best
}

// rate finds whether the primaries' clocks run as fast as this machine's, by another reading of
// each, for which it waits. Of several it tells of the one that may be the furthest off.
func (s *Store) rate(ctx context.Context, first map[string]reading,
	began time.Time,
) (found []backend.Finding) {
	if len(first) == 0 {
		return nil
	}
	wait := time.NewTimer(time.Until(began.Add(rateApart)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return nil
	}
	furthest := 0.0
	for run, second := range s.clocks(ctx) {
		r, known := first[run]
		if !known {
			continue // another server, or restarted
		}
		least, most := bound(r, second)
		if off := max(-least, most); off >= furthest {
			furthest, found = off, []backend.Finding{rateFinding(least, most,
				second.sent.Sub(r.sent))}
		}
	}
	return found
}

// rateFinding judges a clock that gained between least and most of the time between two readings.
//
// Safety: a lease ends by the server's clock. One that runs faster than holders allow for ends it
// before its holder stops believing, and another is granted the lock; one that runs slower blocks
// others for longer.
func rateFinding(least, most float64, apart time.Duration) backend.Finding {
	f := backend.Finding{Check: "clock rate", Level: backend.OK}
	percent := func(part float64) string { return fmt.Sprintf("%.2g%%", 100*math.Abs(part)) }
	readings := fmt.Sprintf(", by two readings %v apart", apart.Round(100*time.Millisecond))
	const (
		allow  = "holders allow for 1%"
		change = "do not set the clock while locks are held, and slew it slowly: chrony's " +
			"maxslewrate is 83333 (8.3%) unless it is set to 5000, say"
	)
	switch {
	case least > rateStep || most < -rateStep:
		f.Level, f.Change = backend.Fail, change
		f.Text = fmt.Sprintf("the server's clock was set, by about %v"+readings,
			time.Duration((least+most)/2*float64(apart)).Round(time.Millisecond))
	case least > rateAllowed:
		f.Level, f.Change = backend.Fail, change
		f.Text = "the server's clock runs at least " + percent(least) +
			" faster than this machine's" + readings +
			": a lock may be granted again while it is held, as " + allow
	case most < -rateAllowed:
		f.Level, f.Change = backend.Warn, change
		f.Text = "the server's clock runs at least " + percent(most) +
			" slower than this machine's" + readings + ": crashed holders block others for longer"
	case max(-least, most) > rateAllowed:
		f.Text = "the server's differs from this machine's by " + percent(max(-least, most)) +
			" at most, and requests are too slow to tell more" + readings + "; " + allow
	default:
		f.Text = "the server's is within " + percent(max(-least, most)) + " of this machine's" +
			readings + "; " + allow
	}
	return f
}
