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
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{os.Getenv("ETCD_ADDR")},
		Logger:    zap.NewNop(),
	})
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

// The stock is in the etcd that has the lock. The compare proves ownership in the transaction that
// writes, and the second one that nobody wrote since the stock was read.
func ExampleBackend_Proof() {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{os.Getenv("ETCD_ADDR")},
		Logger:    zap.NewNop(),
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	b, err := etcdbackend.New(client, etcdbackend.Config{})
	if err != nil {
		panic(err)
	}
	defer b.Close()
	bind := func(ctx context.Context, h locker.Hold) (clientv3.Cmp, error) {
		return b.Proof(ctx, h.StoreKey, h.Token)
	}
	l, err := locker.New(b, bind, locker.Config{})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	var late clientv3.Cmp
	put := func(ctx context.Context, held clientv3.Cmp, left string) (bool, error) {
		now, err := client.Get(ctx, "stock/sku-1")
		if err != nil {
			return false, err
		}
		unchanged := clientv3.Compare(clientv3.ModRevision("stock/sku-1"), "=", 0)
		if len(now.Kvs) > 0 {
			unchanged = clientv3.Compare(clientv3.ModRevision("stock/sku-1"), "=",
				now.Kvs[0].ModRevision)
		}
		put := clientv3.OpPut("stock/sku-1", left)
		done, err := client.Txn(ctx).If(held, unchanged).Then(put).Commit()
		return err == nil && done.Succeeded, err
	}
	err = locker.Do(ctx, l, "sku-1", func(ctx context.Context, held clientv3.Cmp) error {
		late = held
		done, err := put(ctx, held, "9")
		fmt.Println("written:", done)
		return err
	})
	fmt.Println(err)
	done, err := put(ctx, late, "10") // the lock is not held any more
	fmt.Println("written:", done, err)
	// Output:
	// written: true
	// <nil>
	// written: false <nil>
}
