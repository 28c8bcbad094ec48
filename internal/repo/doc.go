// Package repo holds the tests that keep the tree to its rules: who may import whom, that exports
// are documented, that the docs are true about the code, that every failure mode is accounted for.
// It has no code that ships.
//
// The checks read the tree as text and syntax only. Each is a function over an [io/fs.FS], so that
// a fixture can show that it is able to fail.
package repo
