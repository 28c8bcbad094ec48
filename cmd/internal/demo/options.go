package demo

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/backend"
)

var (
	// ErrUsage is wrapped by errors about flags: nothing was tried.
	ErrUsage = errors.New("bad usage")
	// ErrInterrupted is what an interrupted sale ends with, after its report.
	ErrInterrupted = errors.New("interrupted")
)

// Usage returns an error that is [ErrUsage], and says only what it is given.
func Usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

type usageError struct{ text string }

func (e *usageError) Error() string        { return e.text }
func (e *usageError) Is(target error) bool { return target == ErrUsage }

// FlagError says of a flag's value that cannot be read what the flag takes. Other errors it returns
// as they are.
func FlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f := invalid.GetFlag()
	takes, known := map[string]string{
		"int": "a whole number", "uint64": "a whole number without a sign",
		"duration": "a duration, such as 500ms, 30s or 1m30s", "bool": "true or false",
	}[f.Value.Type()]
	if !known {
		return err
	}
	return fmt.Errorf("--%s takes %s, not %q", f.Name, takes, invalid.GetValue())
}

// Options are the flags.
type Options struct {
	Stock, Workers, Processes int

	Think, Rest            time.Duration // between looking and buying, and about how long after it
	TTL                    time.Duration // 0: the configuration's, or a default
	Duration               time.Duration
	Key                    string
	Backend, Config, Trace string // empty: not given
	NoLock, Kill           bool

	Output string // text or json
	Web    bool

	NoColor bool

	sale *pflag.FlagSet // the flags of a sale
}

// Long and Examples are what the command's help says.
const (
	Long = `A tour in a few seconds, which needs no server: buyers sell a small stock
without a lock, with one, and in two processes of which one is killed, and one
slow purchase is drawn. Any flag of a sale, such as --stock, has it hold one
sale instead.

In a sale each buyer looks how much is left, thinks (pays), and writes down what
is left then. Two that do so at once sell one item twice, which a lock prevents.
The stock refuses fencing tokens that are older than one it has seen, so that
not even a buyer that lost its lock without knowing could sell.`

	Examples = `  holdfast demo                       # the tour
  holdfast demo --no-lock             # one sale: what a lock is for
  holdfast demo --processes 2 --kill  # on Linux, nothing to install
  holdfast demo --backend redis://localhost:6379 --processes 2 --kill
  holdfast demo --trace http://localhost:4318  # the waits in Jaeger
  HOLDFAST_BACKEND=redis://localhost:6379 holdfast demo --processes 4 -o json`
)

// Flags adds the flags to those of a command, and sets what is the default. A main with every store
// and exporter has more of them.
func (o *Options) Flags(all *pflag.FlagSet, more bool) {
	o.sale = pflag.NewFlagSet("sale", pflag.ContinueOnError)
	f := o.sale
	f.IntVar(&o.Stock, "stock", 200, "items to sell")
	f.IntVar(&o.Workers, "workers", 8, "buyers in each process")
	f.IntVar(&o.Processes, "processes", 1, "processes; several need a store that they share")
	f.DurationVar(&o.Think, "think", time.Millisecond,
		"time between looking and buying, under the lock")
	f.DurationVar(&o.Rest, "rest", time.Millisecond,
		"about how long a buyer rests between purchases; "+
			"with 0 the one who was just served is the quickest to ask again")
	f.DurationVar(&o.Duration, "duration", 8*time.Second, "end then, even if not all is sold")
	ttl, store := "2s", "file:///tmp/locks (default: "
	if more {
		ttl = "the configuration's, else 2s"
		store = "redis://host:6379 (default: the configuration's, else "
	}
	f.DurationVar(&o.TTL, "ttl", 0, "how long a crashed holder blocks others (default: "+ttl+")")
	f.StringVar(&o.Key, "key", "flash-sale", "name of the lock")
	f.StringVar(&o.Backend, "backend", "", "URL of the store that keeps the lock, such as "+store+
		"mem://, and for several processes a folder of their own on Linux)")
	f.BoolVar(&o.NoLock, "no-lock", false, "take no lock, and sell too much")
	f.BoolVar(&o.Kill, "kill", false,
		"kill one of the processes while it holds the lock, and see when it is free again")
	if more {
		f.StringVar(&o.Config, "config", "",
			"configuration file, YAML or JSON; "+
				"HOLDFAST_… variables win over it, and flags over both")
		f.StringVar(&o.Trace, "trace", "",
			"send traces to this OTLP endpoint, such as Jaeger: "+
				"http://localhost:4318 or grpc://localhost:4317; "+
				"https and grpcs with TLS (default: the configuration's)")
	}
	all.AddFlagSet(f)
	all.BoolVar(&o.Web, "web", false, "show it on a page of this machine as well, until Ctrl-C")
	all.StringVarP(&o.Output, "output", "o", "text", "text, or json: one object")
}

// oneSale reports whether a flag of a sale was given.
func (o *Options) oneSale() (given bool) {
	o.sale.VisitAll(func(f *pflag.Flag) { given = given || f.Changed })
	return given
}

// check refuses what makes no sense before anything is opened.
func (o *Options) check() error {
	for _, name := range []string{"backend", "config", "trace"} {
		// An empty value is a variable that was not set, more likely than a wish for the default.
		if f := o.sale.Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return Usage("--%s is empty", name)
		}
	}
	for _, f := range []struct {
		name     string
		n, limit int
	}{
		{"stock", o.Stock, math.MaxInt32},
		{"workers", o.Workers, 1000},
		{"processes", o.Processes, 64},
	} {
		if f.n < 1 || f.n > f.limit {
			return Usage("--%s %d is not between 1 and %d", f.name, f.n, f.limit)
		}
	}
	for _, c := range []struct {
		wrong bool
		says  string
	}{
		{o.Think < 0, fmt.Sprintf("--think %v is negative", o.Think)},
		{o.Rest < 0, fmt.Sprintf("--rest %v is negative", o.Rest)},
		{o.Duration <= 0, fmt.Sprintf("--duration %v is not positive", o.Duration)},
		// 0 is the default only for who does not say so.
		{o.TTL <= 0 && o.sale.Changed("ttl"), fmt.Sprintf("--ttl %v is not positive", o.TTL)},
		{
			o.Trace != "" && o.NoLock,
			"--trace shows waiting for the lock: not together with --no-lock",
		},
		{o.Kill && o.NoLock, "--kill shows a lock becoming free: not together with --no-lock"},
		{o.Kill && o.Processes < 2, "--kill needs --processes 2 or more: somebody has to survive"},
		{
			o.Output != "text" && o.Output != "json",
			fmt.Sprintf("--output %q is neither text nor json", o.Output),
		},
		{o.Web && o.Output == "json", "--web shows it to people: not together with -o json"},
	} {
		if c.wrong {
			return Usage("%s", c.says)
		}
	}
	if err := backend.ValidateKey(o.Key); err != nil {
		return fmt.Errorf("--key: %w", err)
	}
	return nil
}
