// Package fencing tries package locker/fence on real databases, and on holders that are stopped:
// real processes. It is a module of its own, so that the drivers stay out of everybody's go.sum.
package fencing
