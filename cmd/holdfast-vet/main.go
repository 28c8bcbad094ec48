// Command holdfast-vet finds, in programs that lock with holdfast, what the types cannot stop:
//
//   - a guard that is not unlocked, on every way through its function or on one: its lease is
//     renewed for as long as it is in use;
//   - a value that is used or returned after its guard was unlocked: another may hold the lock by
//     then;
//   - a value that is kept, in a field or a variable that outlives the guard, or given to a
//     goroutine that nobody waits for;
//   - a loop that waits, under a guard, and looks neither at a context nor at the guard: it goes on
//     when the lock is lost.
//
// It is run by go vet:
//
//	go install github.com/holdfast-go/holdfast/cmd/holdfast-vet@latest
//	go vet -vettool=$(which holdfast-vet) ./...
//
// It is silent where it cannot tell: about a guard that is stored or passed on, and about values of
// which a copy is another thing (numbers, strings, structs). It is silent in tests as well, which
// break locks on purpose.
package main

import "golang.org/x/tools/go/analysis/unitchecker"

func main() { unitchecker.Main(analyzer) }
