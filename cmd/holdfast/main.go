// Command holdfast shows what locks do: holdfast demo.
package main

import (
	"context"
	"os"
)

func main() {
	status, end := run(sent.watch(context.Background()), os.Args[1:])
	end.die() // safeguard: run-dies
	os.Exit(status)
}
