package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/tracing"
)

// naming is a store that refuses, and names the key as it is, or quoted.
type naming struct{ backend.Backend }

func (naming) TryAcquire(_ context.Context, c backend.Claim) (backend.Grant, error) {
	return backend.Grant{}, fmt.Errorf("no %s, which is %q, in this store: %w", c.Key, c.Key,
		backend.ErrUnsafe)
}

// What a span says of an error has the key if keys are shown, and else not, from four bytes on;
// what is shorter also stands in other words, which stay as they are.
func TestKeysInErrors(t *testing.T) {
	for _, test := range []struct {
		key   string
		show  bool
		shown bool // in what the span says
	}{
		{"user:jo", true, true},
		{"user:jo", false, false},
		{"jo-7", false, false},
		{`"jo" \ é` + "\t", false, false},
		{"e", false, true},
	} {
		t.Run(fmt.Sprint(test.key, " ", test.show), func(t *testing.T) {
			cfg := tracing.Config{ShowKeys: test.show, KeyClass: func(string) string {
				return "any"
			}}
			open := func() backend.Backend { return naming{mem()} }
			bubble(t, open, setup{cfg: cfg, unseen: test.show}, func(t *testing.T, p, _ *process) {
				if _, err := p.Lock(t.Context(), test.key); !errors.Is(err, backend.ErrUnsafe) {
					t.Fatal(err)
				}
				wrong := 0
				for _, s := range p.ended() {
					if s.Status.Code != codes.Error {
						continue
					}
					wrong++
					says := s.Status.Description
					quoted := fmt.Sprintf("%q", test.key)
					got := strings.Contains(says, test.key) ||
						strings.Contains(says, quoted[1:len(quoted)-1])
					if got != test.shown || !strings.Contains(says, " in this store") {
						t.Errorf("%s says %q; with the key: %v, want %v", s.Name, says, got,
							test.shown)
					}
				}
				if wrong == 0 {
					t.Error("no span is an error")
				}
			})
		})
	}
}

// Each wait of LogOver or more is one line, with the key if keys are shown; without LogOver there
// is none. One of BarsOver or more is drawn and counted. A wait because of nobody in particular is
// logged, too.
func TestLogOverAndBarsOver(t *testing.T) {
	quarantined := func() backend.Backend {
		return membackend.NewWith(membackend.Config{Quarantine: 40 * time.Second})
	}
	const wait = 3 * time.Second
	for name, test := range map[string]struct {
		open      func() backend.Backend
		log, bars time.Duration
		show      bool
		lines     int
		drawn     int
	}{
		"no lines":     {mem, 0, wait, false, 0, 1},
		"shorter":      {mem, wait + 1, wait + 1, false, 0, 0},
		"as long":      {mem, wait, wait, false, 1, 1},
		"with the key": {mem, wait - 1, wait - 1, true, 1, 1},
		"nobody":       {quarantined, wait, wait, false, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := setup{unseen: true}
			s.cfg = tracing.Config{LogOver: test.log, BarsOver: test.bars, ShowKeys: test.show}
			s.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			bubble(t, test.open, s, func(t *testing.T, one, two *process) {
				g, p := one.lock(t, "order-17"), one
				if len(one.named(tracing.SpanWait)) == 0 { // it did not have to wait for the store
					p = two
					time.AfterFunc(wait, func() { _ = g.Unlock() })
					g = two.lock(t, "order-17")
				}
				_ = g.Unlock()
				if got := strings.Count(log.String(), "waited for a lock"); got != test.lines {
					t.Errorf("%d lines, want %d: %s", got, test.lines, &log)
				}
				if got := strings.Contains(log.String(), "order-17"); got != test.show {
					t.Errorf("the key is logged: %v, want %v: %s", got, test.show, &log)
				}
				span := p.one(t, tracing.SpanWait)
				blocked, _ := p.collected(t)[tracing.MetricBlocked].(metricdata.Sum[float64])
				told := span.EndTime.Sub(span.StartTime) >= test.bars
				if bars := p.bars(span); len(bars) != test.drawn ||
					len(blocked.DataPoints) != test.drawn ||
					has(span.Attributes, tracing.AttrHolders) != told {
					t.Errorf("%d bars, counted %v; %v", len(bars), blocked.DataPoints,
						span.Attributes)
				}
			})
		})
	}
}
