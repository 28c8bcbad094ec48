// Package peers has defects of other lock libraries as tests: each passes as long as the library
// has the defect. The same scenarios with holdfast, which survives them, are tests of the same
// names in package rueidisbackend.
package peers
