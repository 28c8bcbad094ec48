package filebackend_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/backend/filebackend" // file://
	"github.com/holdfast-go/holdfast/locker"
)

func Example() {
	dir := filepath.Join(os.TempDir(), "holdfast-example") // such as /var/lock/app
	defer os.RemoveAll(dir)
	ctx := context.Background()
	b, err := backend.Open(ctx, "file://"+dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()

	g, err := l.Lock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("no other process of this machine makes the report")
	if err := g.Unlock(); err != nil {
		fmt.Println(err)
		return
	}
	// Output: no other process of this machine makes the report
}
