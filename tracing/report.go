package tracing

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/locker"
)

// reportEvery is how often the same trouble is logged.
const reportEvery = time.Minute

// logWait logs a wait that took long, and because of whom.
func (o *Observer) logWait(w *op, took time.Duration, result string, all []blame.Culprit) {
	if o.cfg.LogOver <= 0 || took < o.cfg.LogOver {
		return
	}
	args := []any{"class", o.cfg.KeyClass(w.key), "waited", took, "result", result, "blockers", len(all)}
	if o.cfg.ShowKeys {
		args = append(args, "key", w.key)
	}
	if len(all) > 0 {
		_, attrs := culprit(&all[0])
		for _, a := range attrs {
			args = append(args, string(a.Key), a.Value.AsInterface())
		}
	}
	o.cfg.Logger.WarnContext(w.ctx, "holdfast: waited for a lock", args...)
}

// troubles are the results that need somebody to repair something. Lost and leaked locks are package
// locker's to log.
var troubles = map[string]string{
	ResultRefused:     "holdfast: the store refuses locks; it, or this program, is set up wrongly",
	ResultQuarantined: "holdfast: the store grants nothing until locks that it may have forgotten are over",
}

// report logs a result if it is one of the troubles, and was not logged lately.
func (o *Observer) report(ctx context.Context, h locker.Hold, result string, err error) {
	says, wrong := troubles[result]
	if !wrong {
		return
	}
	class, now := o.cfg.KeyClass(h.Key), time.Now()
	last, told := o.reported.LoadOrStore(result+" "+class, now)
	if !told || now.Sub(last.(time.Time)) >= reportEvery && o.reported.CompareAndSwap(result+" "+class, last, now) {
		o.cfg.Logger.ErrorContext(ctx, says, "class", class, "error", o.text(h.Key, err))
	}
}
