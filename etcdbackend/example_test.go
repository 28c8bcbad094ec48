package etcdbackend_test

import (
	"context"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/etcdbackend"
	"github.com/holdfast-go/holdfast/locker"
)

// By URL. Name all members of the cluster: one that hangs is passed over.
func Example() {
	ctx := context.Background()
	b, err := backend.Open(ctx, "etcd://"+os.Getenv("ETCD_ADDR")+"/locks")
	if err != nil {
		panic(err)
	}
	defer b.Close()
	fmt.Println("queue:", b.Capabilities().Queue, "tokens:", b.Capabilities().Fencing)
	// Output: queue: true tokens: true
}

// With the etcd client that the program has. It stays the program's, and is closed after the
// backend.
func ExampleNew() {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv("ETCD_ADDR")}, Logger: zap.NewNop()})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	b, err := etcdbackend.New(client, etcdbackend.Config{})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	err = locker.Do(ctx, l, "sku-1", func(ctx context.Context, _ struct{}) error {
		_, err := client.Put(ctx, "stock/sku-1", "9")
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

// A token of etcd is the revision that created the hold.
func ExampleRevision() {
	ctx := context.Background()
	b, err := backend.Open(ctx, "etcd://"+os.Getenv("ETCD_ADDR"))
	if err != nil {
		panic(err)
	}
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	g, err := l.Lock(ctx, "sku-1")
	if err != nil {
		panic(err)
	}
	fmt.Println(etcdbackend.Revision(g.Hold().Token) > 0, g.Unlock())
	// Output: true <nil>
}
