// Package redistest is what the tests of both Redis backends have in common.
package redistest
