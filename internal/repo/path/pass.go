package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/coverage"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	_ "github.com/holdfast-go/holdfast/redisbackend"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
)

// passEnv says where the counters go, to the program that is measured.
const passEnv = "HOLDFAST_PATH_COUNTERS"

// pass makes one pair on the store at args[0], after some that warm it up, and writes what it
// passed.
func pass(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("want a URL and a mode")
	}
	b, err := backend.Open(ctx, args[0])
	if err != nil {
		return err
	}
	l, err := locker.New[struct{}](b, locker.Bare, locker.Config{})
	if err != nil {
		return err
	}
	for range 3 {
		if err := pair(ctx, l); err != nil {
			return err
		}
	}
	const quiet = 100 * time.Millisecond // for what the last pair left to do behind its back
	time.Sleep(quiet)
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	switch args[1] {
	case "free":
		err = pair(ctx, l)
	case "local":
		err = behind(ctx, l)
	default:
		err = fmt.Errorf("mode %q is neither free nor local", args[1])
	}
	if err != nil {
		return err
	}
	time.Sleep(quiet)
	dir := os.Getenv(passEnv)
	return errors.Join(coverage.WriteMetaDir(dir), coverage.WriteCountersDir(dir))
}

func pair(ctx context.Context, l *locker.Client[struct{}]) error {
	g, err := l.Lock(ctx, "path")
	if err != nil {
		return err
	}
	return g.Unlock()
}

// behind is a pair that waits for another goroutine's.
func behind(ctx context.Context, l *locker.Client[struct{}]) error {
	g, err := l.Lock(ctx, "path")
	if err != nil {
		return err
	}
	waited := make(chan error, 1)
	go func() { waited <- pair(ctx, l) }()
	time.Sleep(30 * time.Millisecond) // so that it waits
	return errors.Join(g.Unlock(), <-waited)
}
