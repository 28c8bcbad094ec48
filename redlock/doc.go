// Package redlock makes a majority of independent backends one backend: what most of them grant is
// granted, so that the failure of less than half of them costs nothing. It is the Redlock algorithm
// with what its text leaves to the reader: tokens, nodes that restart, replies that are lost.
//
//	redlock://?node=redis%3A%2F%2Fa%3A6379&node=redis%3A%2F%2Fb%3A6379&node=redis%3A%2F%2Fc%3A6379
//
// names the nodes by URLs of any registered scheme, percent-encoded, in any mix. Parameters:
// node_timeout (a duration) and drift (such as 0.01). The order does not matter; that all clients
// name the same nodes does: two clients whose majorities need not meet do not exclude each other.
//
// A client that is refused a key on any node by a holder with another list gets
// [backend.ErrUnsafe], if it hears of it before a majority has granted. Lists are compared by the
// nodes' URLs and by who the servers say they are: other names for the same servers are no other
// list, but where names differ a server that was restarted may be taken for another, so name nodes
// the same everywhere. This finds mistakes; it does not make it safe to change the list under
// running clients: end all clients of the old list, wait for the longest TTL if any may have
// crashed, and then start those of the new one.
//
// # What it promises
//
// With N nodes, up to (N-1)/2 may be down, hang or be cut off. Belief exclusion rests on clocks
// that run equally fast within the drift allowance, and on nodes that, once they have lost memory,
// grant nothing for longer than any lease ([backend.ErrQuarantined]); a node that cannot do that
// must keep its memory. Fencing tokens rest on neither: see token.go.
//
// It offers what a majority can decide: exclusive claims. It does not offer
//
//   - Shared: without a queue, readers would keep a writer out for as long as they come.
//   - Permit: counting on each node for itself admits too many. With a limit of 2 on nodes A, B and
//     C, holders on AB, BC and AC are three, and no node saw more than two.
//   - Queue: each node would have a queue in an order of its own, and each would hand over by
//     itself.
//   - Reentrant: an owner's second hold may get another majority, and then another token.
//   - State: a value would have to be read from a majority and written back; use one store for
//     values.
//
// # How it works
//
// A call makes a round (round.go): it asks all nodes at once, counts their votes, and returns when
// a majority has decided. The other answers are seen to in the background. Each node has a share in
// each claim (claim.go), with a queue and a worker: requests about one claim reach a node one after
// another, so a release never overtakes its acquire. A node that fails or falls behind (node.go) is
// skipped until a probe in the background is answered.
package redlock
