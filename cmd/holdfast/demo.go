package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/internal/demo"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
	"github.com/holdfast-go/holdfast/tracing"
)

// newDemo returns the command demo, with every store and exporter.
func newDemo() *cobra.Command {
	var o demo.Options
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "Show what locks are for, in a few seconds and without a server",
		Long:    demo.Long,
		Example: demo.Examples,
	}
	f := cmd.Flags()
	o.Flags(f, true)
	asJSON := f.Bool("json", false, "the same as -o json")
	_ = f.MarkHidden("json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if *asJSON {
			o.Output = "json"
		}
		if o.NoColor, err = cmd.Flags().GetBool(noColor); err != nil {
			return err
		}
		return demo.Run(cmd.Context(), o, openDemo)
	}
	return cmd
}

// newDemoWorker returns the hidden command that runs in the other processes of a sale.
func newDemoWorker() *cobra.Command {
	return &cobra.Command{
		Use:    demo.Worker,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Work(cmd.Context(), os.Stdin, openDemo)
		},
	}
}

// openDemo opens the store that the flags and the configuration name, and has it traced if they say
// so.
func openDemo(ctx context.Context, s demo.Spec) (*demo.Store, error) {
	o := common{backend: s.Backend, config: s.Config, output: s.Output}
	f, err := o.load()
	if err == nil && f.Backend.IsZero() {
		f.Backend, err = config.ParseURL(cmp.Or(s.Folder, "mem://"))
	}
	if err != nil {
		return nil, err
	}
	b, cfg, err := openStore(ctx, f)
	if errors.Is(err, backend.ErrInvalid) {
		err = o.blame(err)
	}
	if err != nil {
		return nil, err
	}
	st := &demo.Store{Backend: b, Name: f.Backend.String(), Config: cfg}
	if endpoint := cmp.Or(s.Trace, f.Tracing.Endpoint.Reveal()); endpoint != "" {
		if err := traceDemo(ctx, st, endpoint, s.Process); err != nil {
			_ = b.Close()
			return nil, err
		}
	}
	return st, nil
}

// traceDemo has the store of a process, its clients and its sale traced.
func traceDemo(ctx context.Context, st *demo.Store, endpoint string, process int) error {
	exporter, err := newExporter(ctx, endpoint)
	if err != nil {
		return err
	}
	t := newSender(exporter, resource.NewSchemaless(
		attribute.String("service.name", demo.Service),
		attribute.String("service.instance.id", fmt.Sprint(process)),
		attribute.Int("process.pid", os.Getpid()),
	))
	silent := slog.New(slog.DiscardHandler)
	obs, err := tracing.NewObserver(tracing.Config{Tracer: t, Logger: silent})
	if err != nil {
		return err
	}
	kind := tracing.Store{Tracer: t}
	scheme, _, _ := strings.Cut(st.Name, ":")
	for part, system := range map[string]string{ // as OpenTelemetry names them
		"redis": "redis", "rueidis": "redis", "etcd": "etcd",
	} {
		if strings.Contains(scheme, part) {
			kind.System = system
		}
	}
	st.Backend = tracing.Wrap(st.Backend, kind)
	st.Config.Observer = locker.Observers(st.Config.Observer, obs)
	st.Span = func(ctx context.Context, name string) (context.Context, func()) {
		ctx, span := t.Tracer(demo.Service).Start(ctx, name)
		return ctx, func() { span.End() }
	}
	st.Flush = func() error {
		if err := t.finish(traceLimit); err != nil {
			return fmt.Errorf("not all traces were sent to %s: %w", endpoint, err)
		}
		return nil
	}
	return nil
}
