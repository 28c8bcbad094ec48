package main

// Locks in a folder.
var fileMutants = []mutant{
	{
		Name: "file: the lock is not taken", Dir: "backend/filebackend", Find: `err = unix\.Flock\(int\(s\.file\.Fd\(\)\), unix\.LOCK_EX\|how\)`,
		Put: "_ = how", Test: "./backend/filebackend Stuck",
	},
	{
		Name: "file: who has died holds on", Dir: "backend/filebackend", Find: `(dead\[process\] = )f\.dead\(process\)`, Put: "${1}false",
		Test: "./backend/filebackend Dead$",
	},
	{
		Name: "file: who cannot be looked at is dead", Dir: "backend/filebackend", Find: `return err == nil && ended`, Put: "return err != nil || ended",
		Test: "./backend/filebackend NotDead",
	},
	{
		Name: "file: leases follow the calendar", Dir: "backend/filebackend", Find: `unix\.CLOCK_BOOTTIME, &`, Put: "unix.CLOCK_REALTIME, &",
		Test: "./backend/filebackend BootClock",
	},
	{
		Name: "file: a changed record is read", Dir: "backend/filebackend", Find: `sum != fmt\.Sprintf\(.*\):`, Put: `sum == "":`,
		Test: "./backend/filebackend Torn",
	},
	{
		Name: "file: a weight is written for who counts it once", Dir: "backend/filebackend", Find: `if r\.Image\.Weighted\(\) \{`,
		Put: "if false {", Test: "./backend/filebackend WeightFormat",
	},
	{
		Name: "file: a key is forgotten before its token", Dir: "backend/filebackend", Find: `return rec\.Image\.Empty\(\) && .*`,
		Put: "return rec.Image.Empty()", Test: "./backend/filebackend TokenAhead",
	},
	{
		Name: "file: a folder of several machines is taken", Dir: "backend/filebackend", Find: `(is := shared\[__\]; is) \{`, Put: "$1 && false {",
		Test: "./backend/filebackend FileSystems",
	},
	{
		Name: "file: another machine's holder has ended", Dir: "backend/filebackend", Find: `rec\.Boot != f\.boot && f\.lives\(process\)`, Put: "false",
		Test: "./backend/filebackend Reboot",
	},
}
