package main

// The command, and what tools do.
var commandMutants = []mutant{
	{
		Name: "a command that was told of a loss goes on", Dir: "cmd/holdfast", Find: `kill\.Reset\(within\)`, Put: "_ = within",
		Test: "./cmd/holdfast RunLoses", Slow: true,
	},
	{
		Name: "a command is told when its lease has ended", Dir: "cmd/holdfast",
		Find: `g\.Until\(\)\)-grace\)`, Put: "g.Until())+time.Hour)",
		Test: "./cmd/holdfast RunEnds", Slow: true,
	},
	{
		Name: "a command outlives holdfast", Dir: "cmd/holdfast", Find: `attr\.Pdeathsig = syscall\.SIGKILL`, Put: "_ = attr",
		Test: "./cmd/holdfast CommandDies", Slow: true,
	},
	{
		Name: "release takes whichever hold it finds", Dir: "backend", Find: `case h\.Token != token \|\| token == 0:`,
		Put: "case false:", Test: "./backend/membackend Conformance/force-release",
	},
	{
		Name: "all readers lose the lock with one", Dir: "backend", Find: `c := Claim\{Key: key, Owner: h\.Owner,`,
		Put: `c := Claim{Key: key, Owner: h.ID + h.Owner,`, Test: "./backend/membackend Conformance/force-release",
	},
}
