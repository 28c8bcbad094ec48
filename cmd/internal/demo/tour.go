package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// Run holds the tour or, if a flag of a sale is given, one sale, and prints what came of it on
// standard output. The error says if anything went wrong: more sold than there was although there
// is a lock, a store that fails, traces that were not sent, an interruption.
func Run(ctx context.Context, o Options, with Opener) error {
	if err := o.check(); err != nil {
		return err
	}
	s := newScreen(o)
	if o.Web {
		stop, err := s.serve(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	do := s.tour
	if o.oneSale() {
		do = func(ctx context.Context) error { return s.one(ctx, o, with) }
	}
	if err := do(ctx); err != nil || !o.Web {
		return err
	}
	s.finish()
	<-ctx.Done()
	return nil
}

// one holds one sale.
func (s *screen) one(ctx context.Context, o Options, with Opener) error {
	r, err := hold(ctx, Spec{Options: o}, with, time.Second, func(a account) {
		fmt.Fprintln(os.Stderr, a.line(o.Stock))
	})
	if r == nil {
		return err
	}
	if s.json {
		return errors.Join(json.NewEncoder(s.to).Encode(r), r.err(), err)
	}
	s.show("", r, r.title()+" "+r.story())
	s.draw(r)
	return errors.Join(r.err(), err)
}

// A part is one sale of the tour.
type part struct {
	name  string // in JSON
	title string
	story string // "" for the result's; then the slowest purchase is drawn, too
	sale  Options
	slow  int // Spec.SlowAt
}

var tour = []part{
	{
		name: "no_lock", title: "Without a lock",
		sale: Options{
			Stock: 200, Workers: 8, Processes: 1, Think: 4 * time.Millisecond, NoLock: true,
		},
	},
	{
		name: "lock", title: "With a lock (mem://)",
		sale: Options{Stock: 200, Workers: 8, Processes: 1, Think: 4 * time.Millisecond},
	},
	{
		name: "kill", title: "In two processes, one of them killed (file://)",
		sale: Options{
			Stock: 200, Workers: 4, Processes: 2, Think: 4 * time.Millisecond, Kill: true,
		},
	},
	{
		name: "slow", title: "One slow purchase, and why",
		story: "Four buyers. One payment takes 300ms, the others 30ms.",
		sale:  Options{Stock: 10, Workers: 2, Processes: 2, Think: 30 * time.Millisecond},
		slow:  3,
	},
}

const intro = `A flash sale, four times. ` +
	`Each buyer looks how many are left, pays, which takes a moment, and writes down one fewer.`

// tour holds its sales, in memory and in folders that are removed again.
func (s *screen) tour(ctx context.Context) error {
	results := map[string]*result{}
	s.text(wrap(intro, "", s.width))
	for i, p := range tour {
		title := fmt.Sprintf("%d. %s", i+1, p.title)
		s.text("\n")
		if p.sale.Processes > 1 && !folders {
			if p.sale.Kill {
				s.text(title + "\n" + wrap(
					"Left out: processes of one machine share locks in a folder on Linux only. "+
						"With a Redis: holdfast demo --backend redis://localhost:6379 "+
						"--processes 2 --kill.", "   ", s.width))
				continue
			}
			p.sale.Processes, p.sale.Workers = 1, p.sale.Workers*p.sale.Processes
		}
		p.sale.Key, p.sale.TTL = "flash-sale", defaultTTL
		p.sale.Rest, p.sale.Duration = p.sale.Think, time.Minute
		spec := Spec{Options: p.sale, Plain: true, SlowAt: p.slow}
		r, err := hold(ctx, spec, Open, 100*time.Millisecond, func(a account) {
			s.progress(title + ": " + a.line(p.sale.Stock))
		})
		if r == nil {
			return err
		}
		results[p.name] = r
		s.show(title+": ", r, cmp.Or(p.story, r.story()))
		if p.story != "" {
			s.draw(r)
		}
		if err := errors.Join(r.err(), err); err != nil {
			return fmt.Errorf("part %d of the tour: %w", i+1, err)
		}
	}
	if s.json {
		return json.NewEncoder(s.to).Encode(results)
	}
	s.conclude(results)
	return nil
}

// conclude says what was seen, and where to go on.
func (s *screen) conclude(results map[string]*result) {
	s.text("\n")
	none, locked, killed := results["no_lock"], results["lock"], "."
	if r := results["kill"]; r != nil {
		killed = fmt.Sprintf(", in one process and in two, "+
			"and when one was killed while it held the lock, it was free again after %v.",
			brief(r.Kill.FreeMS))
	}
	for _, sentence := range []string{
		fmt.Sprintf("Without a lock %d items were sold that were not there.", none.Oversell),
		fmt.Sprintf("The same code under a lock sold %d of %d%s",
			locked.Sold, locked.Stock, killed),
		"Who had to wait knows who held the lock meanwhile: " +
			"/debug/locks/ draws the same bars in your program, " +
			"and traces link to the holder (docs/tracing.md).",
		"README.md has the program to begin with, " +
			"docs/typed.md shows how the compiler asks for the lock, " +
			"and `holdfast run KEY -- CMD` needs no Go at all.",
		"`make test` tries all of this on real servers, and a lot that goes wrong there.",
	} {
		s.text("-" + wrap(sentence, "  ", s.width)[1:])
	}
}
