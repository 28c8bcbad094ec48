// Command etcdd is etcd's server, of the version that go.mod names: tests build it through the
// module proxy.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
