// Package config reads one YAML or JSON file, and the environment, into what a program needs to
// take locks: a backend, a [locker.Config] and where traces go. Another store is another line in
// the file.
//
//	f, err := config.Load("holdfast.yaml")
//	b, cfg, err := f.Open(ctx) // import the backend's package, so that its URLs are known
//	l, err := locker.New(b, locker.Bare, cfg)
//
// Every key, its environment variable and its default are in docs/configuration.md.
//
// # Where a value comes from
//
// The first of these that has one: the key's HOLDFAST_… variable; the file, in whose values ${NAME}
// and ${NAME:-default} are expanded; the default.
//
// # Errors
//
// All problems are reported at once, joined. Each is an *[Error] that says where the value came
// from. A wrong value wraps [backend.ErrInvalid]; a file that cannot be read wraps the system's
// error, such as [io/fs.ErrNotExist].
//
// # Secrets
//
// A URL may hold a password, and any value may come from a variable that does. So no error quotes a
// value, unless it is known to be harmless (a duration that was parsed), and [File] and [URL]
// print, log and marshal without user information and query. [URL.Reveal] is the only way to the
// whole URL.
package config
