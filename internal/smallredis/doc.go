// Package smallredis is a Redis for simulations: the commands that holdfast's scripts use, and the
// scripts themselves as they ship, run by a Lua of Go's. It has a clock that is given to it, keys
// that expire by that clock, SET … IFEQ or not, memory that runs out when it is told so, and a
// journal from which a replica is made. It has no network and no goroutines.
//
// That it answers as real servers do is what its test compares: the same random scripts and
// commands from the same states, on each server that the machine has.
package smallredis
