package main

func init() { mutants = append(mutants, clients...) }

// clients are the defects of what goes through a client library.
var clients = []mutant{
	// The go-redis backend.
	{
		"redis: watch returns before the confirmation", "internal/redis/watch.go",
		"err = s.await(ctx, state)", "_ = state", "./redisbackend", ".",
	},
	{
		"redis: no wake-up after a reconnect", "internal/redis/watch.go",
		"s.Hub.Wake(name, backend.Wake{}) // first", "_ = backend.Wake{} // first", "./redisbackend", ".",
	},
	{
		"redis: a request waits for the store, not for ctx", "internal/redis/lanes.go",
		"case <-ctx.Done():", "case <-make(chan struct{}):", "./redisbackend", ".",
	},
	{
		"redis: no wake-up of those in line after a reconnect", "internal/redis/watch.go",
		"s.Line.WakeAll(backend.Wake{})", "_ = backend.Wake{}", "./redisbackend", ".",
	},
	{
		"redis: an older signal hides a grant", "internal/redis/watch.go",
		"s.Line.Deliver(topic, w)", "s.Line.Wake(topic, w)", "./redisbackend", "Newest",
	},
	{
		"redis: an evicting server is taken", "internal/redis/check.go",
		"if s.cfg.AllowEviction", "if true || s.cfg.AllowEviction", "./redisbackend", ".",
	},
	{
		"redis: those who wait for a connection are forgotten", "internal/redis/lanes.go",
		"l.waiting = append(l.waiting, r)", "_ = r", "./redisbackend", "Lanes",
	},

	// The rueidis backend.
	{
		"rueidis: a change that comes during the first read is forgotten", "rueidisbackend/tracking.go",
		"in.marks != marks {", "in.marks != marks && false {", "./rueidisbackend", "MissedNothing",
	},
	{
		"rueidis: a lost connection wakes nobody", "rueidisbackend/tracking.go",
		"if w.known && !w.held {", "if false {", "./rueidisbackend", "LostConnection",
	},
	{
		"rueidis: a renewal wakes those who wait", "rueidisbackend/tracking.go",
		"!w.held && seen != w.seen", "!w.held", "./rueidisbackend", "RenewalWakesNobody",
	},
	{
		"rueidis: an answer is kept although the key has changed", "rueidisbackend/held.go",
		"if s.changes == changes {", "if true {", "./rueidisbackend", "HeldAnswers",
	},
	{
		"rueidis: a release leaves what was known", "rueidisbackend/held.go",
		"b.held.forget(b.store.Layout.Key(c.Key)) // the", "_ = b.held // the", "./rueidisbackend", "HeldAnswers",
	},
	{
		"rueidis: a batch does not know of NOSCRIPT", "rueidisbackend/batch.go",
		`refusedAs(r.Err, "NOSCRIPT")`, "false", "./rueidisbackend", "Batches",
	},
	{
		"rueidis: what nobody waits for is sent", "rueidisbackend/batch.go",
		"if r.Err = r.Ctx.Err(); r.Err == nil {", "if r.Err = nil; r.Err == nil {", "./rueidisbackend", "Batches",
	},
	{
		"rueidis: a request waits for the store, not for ctx", "rueidisbackend/call.go",
		"case <-bounded.Done():", "case <-make(chan struct{}):", "./rueidisbackend", "Context|Request",
	},
}
