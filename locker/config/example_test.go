package config_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	_ "github.com/holdfast-go/holdfast/backend/membackend" // mem://
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
)

// A file decides which store is used, and how.
func ExampleLoad() {
	ctx := context.Background()
	f, err := config.Load("testdata/holdfast.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f)

	b, cfg, err := f.Open(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	l, err := locker.New(b, locker.Bare, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	err = locker.Do(ctx, l, "order-7", func(context.Context, struct{}) error {
		fmt.Println("locked")
		return nil
	})
	fmt.Println(err)
	// Output:
	// backend=mem:// ttl=20s namespace=shop wait.mode=notify wait.fallback=2s require=fencing,watch
	// locked
	// <nil>
}

// All problems are reported at once, with their places and without the password.
func ExampleLoad_mistakes() {
	_, err := config.Load("testdata/mistakes.yaml")
	fmt.Println(strings.ReplaceAll(err.Error(), "; ", ";\n    ")) // else the lines are long

	var first *config.Error
	if errors.As(err, &first) {
		fmt.Println(first.Line, first.Key)
	}
	// Output:
	// config: testdata/mistakes.yaml:1: backend: has an @ behind its host;
	//     percent-encode special characters in user and password
	// config: testdata/mistakes.yaml:2: ttl: needs a unit, such as 30s, 1m30s or 500ms
	// config: testdata/mistakes.yaml:4: wait.mod: unknown key;
	//     did you mean wait.mode?
	// 1 backend
}

// Without a file, the environment is enough.
func ExampleFromEnv() {
	// As a deployment would set them:
	_ = os.Setenv("HOLDFAST_BACKEND", "redis://app:secret@redis.internal:6379/0")
	_ = os.Setenv("HOLDFAST_WAIT_MODE", "poll")

	f, err := config.FromEnv()
	fmt.Println(f, err)

	_ = os.Unsetenv("HOLDFAST_BACKEND")
	_ = os.Unsetenv("HOLDFAST_WAIT_MODE")
	// Output:
	// backend=redis://redis.internal:6379/0 wait.mode=poll <nil>
}
