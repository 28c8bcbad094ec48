// Package interop holds the string dialect against the real libraries that speak it: whatever one
// of them holds, we are refused, and the other way about. It is a module of its own, so that they
// stay out of everybody's go.sum.
package interop
