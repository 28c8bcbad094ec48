package filebackend_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/backend/filebackend" // file://
	"github.com/holdfast-go/holdfast/locker"
)

func Example() {
	dir, err := os.MkdirTemp("", "holdfast-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	b, err := backend.Open(ctx, "file://"+filepath.Join(dir, "locks")) // such as file:///var/lock/app
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	g, err := l.Lock(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("no other process of this machine makes the report")
	if err := g.Unlock(); err != nil {
		log.Fatal(err)
	}
	// Output: no other process of this machine makes the report
}
