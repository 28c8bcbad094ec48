package main

// What refuses a late holder at the resource.
var fenceMutants = []mutant{
	{
		Name: "fence: an older token is admitted", Dir: "locker/fence", Find: `if token < p\.newest \{`, Put: "if false {",
		Test: "./locker/fence Gate|HTTP",
	},
	{
		Name: "fence: a newer one does not wait for the older", Dir: "locker/fence", Find: `for p\.running > 0 && `, Put: "for false && ",
		Test: "./locker/fence Gate",
	},
	{
		Name: "fence: a token is marked only when it is let in", Dir: "locker/fence",
		Find: `(p\.newest = )max\(p\.newest, token\)(\n\tfor .* && token )==( p\.newest \{)`,
		Put:  "if p.running == 0 {\np.newest = max(p.newest, token)\n}$2>=$3", Test: "./locker/fence Gate",
	},
	{
		Name: "fence: a statement that changed nothing has written", Dir: "locker/fence", Find: `if changed == 0 \{`, Put: "if changed < 0 {",
		Test: "./locker/fence Exec",
	},
	{
		Name: "fence: lua: an earlier grant's token will do", Dir: "internal/redis/script", Find: `token < first or `, Put: "",
		Test: "./redisbackend Fenced$",
	},
	{
		Name: "fence: lua: tokens of one grant are not in order", Dir: "internal/redis/script", Find: ` or token < mark`, Put: "",
		Test: "./redisbackend Fenced$",
	},
	{
		Name: "fence: lua: dialect: a peer's hold is ours", Dir: "internal/redis/script", Find: `if counter and owner == stored then`,
		Put: "if counter then", Test: "./redisbackend Fenced$",
	},
	{
		Name: "fence: etcd: who waits has a proof", Dir: "etcdbackend",
		Find: `e\.granted && (token-e\.token\(\) <)`, Put: "$1", Test: "./etcdbackend Proof",
	},
	{
		Name: "fence: etcd: any holder is proof", Dir: "etcdbackend",
		Find: `e\.granted && token-e\.token\(\) < 1<<tokenShift`, Put: "e.granted", Test: "./etcdbackend Proof",
	},
}
