package waiting_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/waiting"
)

// A backend's one subscription wakes whoever waits for a key.
func ExampleHub() {
	var hub waiting.Hub[string]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	free := hub.Watch(ctx, "sku-1")
	hub.Wake("sku-2", "another key")
	hub.Wake("sku-1", "released")
	hub.Wake("sku-1", "released again: coalesced")
	fmt.Println(<-free, len(free))
	// Output: released 0
}

// How long to sleep between two attempts: at random, so that two who met once do not meet again.
func ExampleBackoff() {
	b := waiting.NewBackoff(5*time.Millisecond, 500*time.Millisecond)
	for range 100 {
		if d := b.Next(); d < time.Millisecond || d > 500*time.Millisecond {
			fmt.Println("out of bounds:", d)
		}
	}
	// Output:
}

// A wait mode for stores that forbid subscriptions: asks with backoff alone.
func ExampleConfig() {
	cfg, err := waiting.Config{Mode: waiting.Poll, Initial: 10 * time.Millisecond}.WithDefaults()
	fmt.Println(cfg.Initial, cfg.Max, err)
	// Output: 10ms 500ms <nil>
}
