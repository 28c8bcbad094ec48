// Package redis is what the Redis backends have in common beyond the scripts of package script: the verbs, the look
// at the server, what an error means, who watches what, and what a URL may say. It imports no client: what a client library
// does for it is [Transport] and [Messages].
package redis
