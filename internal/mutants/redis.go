package main

// The scripts of the Redis store, on a real server, and what stands around them.
var redisMutants = []mutant{
	{
		Name: "lua: anybody may release", Dir: "internal/redis/script",
		Find: `string\.find\(stored, ' ' \.\. ARGV\[2\] \.\. ' ' \.\. id \.\. ' ', 20, true\) == 20`,
		Put:  `#stored > 19`, Test: "./internal/redis/script ReleaseAfterTheEnd|Strangers|DeadWaiters",
	},
	{
		Name: "lua: anybody may release where others wait", Dir: "internal/redis/script",
		Find: `if lock\.owner == id then( code)`,
		Put:  `if lock.owner then$1`, Test: "./internal/redis/script Scripts|CancelAgainst|DeadWaiters|ReadersAndWriters",
	},
	{
		Name: "lua: a release after the end of the lease says OK", Dir: "internal/redis/script",
		Find: `if type\(stored\) == 'string' and none_in_flight and`,
		Put:  `if type(stored) == 'string' and`, Test: "./internal/redis/script ReleaseAfterTheEnd",
	},
	{
		Name: "lua: no mark is left", Dir: "internal/redis/script", Find: `mark\(\)( return \{HELD)`, Put: `$1`, Test: "./internal/redis/script Mark",
	},
	{
		Name: "lua: no mark is left, the long way", Dir: "internal/redis/script", Find: `mark\(\)( return commit)`, Put: `$1`,
		Test: "./internal/redis/script Mark",
	},
	{
		Name: "lua: a mark is not heard", Dir: "internal/redis/script", Find: `if string\.sub\(stored, -1\) == ' ' then`, Put: `if false then`,
		Test: "./internal/redis/script Mark",
	},
	{
		Name: "redis: who watches leaves no mark", Dir: "internal/redis", Find: `if !c\.Queue && s\.waiters\.watches\(c\.Key\) \{`, Put: `if false {`,
		Test: "./redisbackend TestConformance$/watch", Slow: true,
	},
	{
		Name: "native: taken whoever has it", Dir: "internal/redis", Find: `"IFEQ", script\.Free\(k\.last\), `, Put: ``, Test: "./internal/redis Native",
	},
	{
		Name: "native: freed whoever has it", Dir: "internal/redis", Find: `"IFEQ", script\.Held\(k\.last, k\.tail\),`, Put: ``, Test: "./internal/redis Native",
	},
	{
		Name: "native: sent again without an answer", Dir: "internal/redis", Find: `delete\(n\.known, name\)`, Put: ``, Test: "./internal/redis Native",
	},
	{
		Name: "native: an estimate of any age", Dir: "internal/redis", Find: `age > maxAge \|\| wall < 0 \|\| wall > maxAge`, Put: `age < 0 || wall < 0`,
		Test: "./internal/redis Native",
	},
	{
		Name: "native: tokens from the estimate alone", Dir: "internal/redis", Find: `max\(k\.last\+1, least\)`, Put: `least`, Test: "./internal/redis Native",
	},
	{
		Name: "native: a minimum token is not heeded", Dir: "internal/redis", Find: `least := max\(clock, c\.MinToken\)`, Put: `least := clock`,
		Test: "./internal/redis Native",
	},
	{
		Name: "native: a minimum token takes the key away from the clock", Dir: "internal/redis",
		Find: `c\.MinToken > clock\+`, Put: `c.MinToken > 2*clock+`, Test: "./internal/redis Native",
	},
	{
		Name: "native: a minimum token is taken for the clock", Dir: "internal/redis/script", Find: `uint64\(us\), ok1 && ok2`, Put: `uint64(n), ok1 && ok2`,
		Test: "./internal/redis Native",
	},
	{
		Name: "native: a counter ahead of the clock is not kept", Dir: "internal/redis", Find: `\|\| !kept \|\|`, Put: `|| kept && false ||`,
		Test: "./internal/redis Native",
	},
	{
		Name: "native: a late answer is believed", Dir: "internal/redis", Find: `k\.id == "" && n\.known\[name\]\.last > k\.last`, Put: `false`,
		Test: "./internal/redis Native",
	},
	{
		Name: "native: no tombstone is left", Dir: "internal/redis", Find: `\|\| !c\.NoneInFlight \|\|`, Put: `||`, Test: "./internal/redis Native",
	},
	{
		Name: "native: no answer is a no", Dir: "internal/redis", Find: `return backend\.AnswerOf\(err\) == backend\.Unknown( \})`, Put: `return false$1`,
		Test: "./internal/redis Native",
	},
	{
		Name: "lua: no tombstone is left", Dir: "internal/redis/script",
		Find: `addTombstone\(lock\.tombs, id, tonumber\(ARGV\[3\]\)\)`,
		Put:  ``, Test: "./internal/redis/script Tombstone",
	},
	{
		Name: "lua: tombstones are not looked at", Dir: "internal/redis/script",
		Find: `if isTombstoned\(lock\.tombs, id\) then return \{LOST\} end`,
		Put:  ``, Test: "./internal/redis/script Tombstone",
	},
	{
		Name: "lua: dialect: tombstones are not looked at", Dir: "internal/redis/script",
		Find: `if isTombstoned\(tombs, id\) then return \{LOST\} end`,
		Put:  ``, Test: "./internal/redis/script Dialect|Tombstone",
	},
	{
		Name: "lua: dialect: anybody may release", Dir: "internal/redis/script",
		Find: `if owner == id then( run\('DEL', key\))`,
		Put:  `if owner then$1`, Test: "./internal/redis/script Dialect",
	},
	{
		Name: "lua: anybody may renew", Dir: "internal/redis/script",
		Find: `if owner ~= id then return end( local left = redis\.call\('PTTL', key\) - margin)`,
		Put:  `$1`, Test: "./redisbackend TestConformance$/renew", Slow: true,
	},
	{
		Name: "lua: a renewal revives", Dir: "internal/redis/script",
		Find: `if left <= 0 then return end( local reply)`,
		Put:  `$1`, Test: "./redisbackend TestConformance$/renew", Slow: true,
	},
	{
		Name: "lua: a renewal revives where others hold", Dir: "internal/redis/script",
		Find: `if not hold or hold\.ends <= now then return end`,
		Put:  `if not hold then return end`, Test: "./redisbackend TestConformance$/as-mutex//renew", Slow: true,
	},
	{
		Name: "lua: a renewal shortens", Dir: "internal/redis/script",
		Find: `math\.max\(left, ARGV\[2\] \+ 1\) \+ margin`,
		Put:  `ARGV[2] + 1 + margin`, Test: "./redisbackend TestConformance$/renew", Slow: true,
	},
	{
		Name: "lua: tokens come from the clock alone", Dir: "internal/redis/script",
		Find: `if counter >= least then token = counter \+ 1 end`,
		Put:  ``, Test: "./internal/redis/script Counter|Tokens",
	},
	{
		Name: "lua: tokens run away from the clock", Dir: "internal/redis/script",
		Find: `if last <= least \+ 10000 then`,
		Put:  `if true then`, Test: "./internal/redis/script Counter|Tokens|Reserve",
	},
	{
		Name: "lua: tokens run away from the clock where others wait", Dir: "internal/redis/script",
		Find: `math\.max\(1, math\.min\(claim\.reserve, least \+ NEAR - token\)\)`,
		Put:  `claim.reserve`, Test: "./internal/redis/script Counter|Tokens|Reserve",
	},
	{
		Name: "lua: tokens run away from the clock when handed over", Dir: "internal/redis/script",
		Find: `or last > us \+ NEAR then return end`,
		Put:  `then return end`, Test: "./internal/redis/script Counter|Tokens|Reserve",
	},
	{
		Name: "lua: the queue is overtaken", Dir: "internal/redis/script",
		Find: `fits\(claim\) and \(lock\.waiting == 0 or lock\.mode == 'r'\)`,
		Put:  `fits(claim)`, Test: "./internal/redis/script ReadersAndWriters|Permits|DeadWaiters",
	},
	{
		Name: "lua: a permit too many", Dir: "internal/redis/script",
		Find: `lock\.weight \+ claim\.weight <= lock\.limit and claim`,
		Put:  `lock.weight + claim.weight <= lock.limit + 1 and claim`, Test: "./internal/redis/script Permits",
	},
	{
		Name: "lua: who comes counts once", Dir: "internal/redis/script",
		Find: `lock\.weight \+ claim\.weight <= lock\.limit and claim`,
		Put:  `lock.weight < lock.limit and claim`, Test: "./internal/redis/script Weights",
	},
	{
		Name: "lua: who holds counts once", Dir: "internal/redis/script",
		Find: `lock\.holders \+ 1, lock\.weight \+ claim\.weight`,
		Put:  `lock.holders + 1, lock.weight + 1`, Test: "./internal/redis/script Weights",
	},
	{
		Name: "lua: a weight is not given back", Dir: "internal/redis/script",
		Find: `lock\.weight - hold\.weight`,
		Put:  `lock.weight - 1`, Test: "./internal/redis/script Weights",
	},
	{
		Name: "lua: a slot has no weight", Dir: "internal/redis/script", Find: `if hold\.weight > 1 then( token)`, Put: `if false then$1`,
		Test: "./internal/redis/script Weights",
	},
	{
		Name: "lua: the sum of the weights is not stored", Dir: "internal/redis/script",
		Find: `if group\.weight > group\.holders then`,
		Put:  `if false then`, Test: "./internal/redis/script Weights",
	},
	{
		Name: "lua: any sum of weights is taken", Dir: "internal/redis/script",
		Find: `\(not weight or \(`,
		Put:  `(true or (`, Test: "./internal/redis/script DamagedGroup",
	},
	{
		Name: "redis: a weight is not sent", Dir: "internal/redis/script", Find: `if c\.Weight > 1 \{`, Put: "if false {",
		Test: "./internal/redis/script Arguments|Weights",
	},
	{
		Name: "lua: running leases are dropped", Dir: "internal/redis/script",
		Find: `if hold\.ends > now then lock\.seen = math\.min\(lock\.seen, hold\.ends\) else drop\(n, hold\) end`,
		Put:  `drop(n, hold)`, Test: "./internal/redis/script Permits|Reader|Purge",
	},
	{
		Name: "lua: anybody hands over", Dir: "internal/redis/script",
		Find: `fields\[2\] ~= id or `,
		Put:  ``, Test: "./internal/redis/script CancelAgainst|RepeatsInLine|DeadWaiters|Scripts|EndedLease",
	},
	{
		Name: "lua: a hand-over with an old token", Dir: "internal/redis/script",
		Find: `local token = math\.max\(counter \+ 1, us\)( local last)`,
		Put:  `local token = us - 1000000$1`, Test: "./internal/redis/script Counter|Tokens|Reserve",
	},
	{
		Name: "lua: handed over to who has gone", Dir: "internal/redis/script",
		Find: `if not ends or tonumber\(ends\) <= now then return end`,
		Put:  `if not ends then return end`, Test: "./internal/redis/script DeadWaiters|CancelAgainst",
	},
	{
		Name: "lua: a server that forgot grants at once", Dir: "internal/redis/script",
		Find: `elseif known ~= life then`,
		Put:  `elseif false then`, Test: "./internal/redis/script Guard",
	},
	{
		Name: "lua: a release lets somebody in at a server that forgot", Dir: "internal/redis/script",
		Find: `if closed or \(lock\.owner`,
		Put:  `if (lock.owner`, Test: "./internal/redis/script Guard",
	},
	{
		Name: "redis: an unknown error is a no", Dir: "internal/redis/script",
		Find: `return errors\.New\("redis: " \+ shown\)`,
		Put:  `return fmt.Errorf("%w: %s", backend.ErrUnavailable, shown)`, Test: "./internal/redis/script Error",
	},
	{
		Name: "redis: no answer is a no", Dir: "internal/redis",
		Find: `return fmt\.Errorf\("redis: no answer within %v", `,
		Put:  `return fmt.Errorf("%w: none within %v", backend.ErrUnavailable, `, Test: "./redisbackend Context|Cancel|Answer|Failure|Fail|Hung|Timeout",
	},
	{
		Name: "redis: an evicting server is taken", Dir: "internal/redis",
		Find: `if s\.cfg\.AllowEviction \{`,
		Put:  `if true {`, Test: "./redisbackend Evict|Server|Memory|Unsafe|Check",
	},
	{
		Name: "lua: what has run out is renewed, the long way", Dir: "internal/redis/script",
		Find: `lock\.owner == id and lock\.expires > now then( lock\.expires = )`, Put: "lock.owner == id then$1", Test: "./internal/redis/script EndedLease",
	},
	{
		Name: "lua: a release after the end says yes, handing over", Dir: "internal/redis/script", Find: `return expires > now and OK or EXPIRED`,
		Put: "return OK", Test: "./internal/redis/script ReleaseAfterTheEnd",
	},
	{
		Name: "lua: a release after the end says yes, the long way", Dir: "internal/redis/script",
		Find: `lock\.expires > now and OK or EXPIRED`, Put: "OK", Test: "./internal/redis/script EndedLease",
	},
	{
		Name: "lua: tokens come from the clock alone, handing over", Dir: "internal/redis/script", Find: `math\.max\(counter \+ 1, us\)`,
		Put: "us", Test: "./internal/redis/script Counter|Tokens|Reserve",
	},
	{
		Name: "lua: tokens come from the clock alone, the long way", Dir: "internal/redis/script",
		Find: `math\.max\(lock\.counter \+ 1, least\)`, Put: "least", Test: "./internal/redis/script Counter|Tokens|Reserve",
	},
	{
		Name: "lua: a server that forgot grants", Dir: "internal/redis/script", Find: `if refusal or closed then return refusal or closed end`,
		Put: "if refusal then return refusal end", Test: "./internal/redis/script Guard",
	},
	{
		Name: "lua: a server that forgot hands over", Dir: "internal/redis/script", Find: `none_in_flight and not closed and`, Put: "none_in_flight and",
		Test: "./internal/redis/script Guard",
	},
	{
		Name: "lua: the dead are let in", Dir: "internal/redis/script", Find: `elseif claim\.ends <= now then`, Put: "elseif false then",
		Test: "./internal/redis/script ManyDeadWaiters", Slow: true,
	},
	{
		Name: "lua: a heartbeat revives a place", Dir: "internal/redis/script", Find: `if tonumber\(ends\) > now then( positions)`,
		Put: "if true then$1", Test: "./internal/redis/script HeartbeatRevives",
	},
	{
		Name: "lua: a heartbeat tells a token from before", Dir: "internal/redis/script", Find: `(concat\(positions, ' '\), )counter(, ms)`,
		Put: "${1}counter - 1$2", Test: "./redisbackend Conformance.*/heartbeat",
	},
	{
		Name: "lua: a reader beside a writer", Dir: "internal/redis/script", Find: `if claim\.mode ~= lock\.mode then return false end`, Put: "",
		Test: "./internal/redis/script ReadersAndWriters|Permits|Reentrant",
	},
	{
		Name: "lua: dialect: anybody renews", Dir: "internal/redis/script", Find: `if owner ~= id then( primary\(\))`, Put: "if not owner then$1",
		Test: "./internal/redis/script Dialect",
	},
	{
		Name: "redis: an error reply is no answer", Dir: "internal/redis", Find: `if f\.Reply != "" \{`, Put: `if f.Reply != "" && false {`,
		Test: "./redisbackend FailureClasses",
	},
	{
		Name: "redis: a cut connection is a no", Dir: "internal/redis", Find: `&& dial\.Op == "dial"`, Put: "",
		Test: "./redisbackend FailureClasses",
	},
	{
		Name: "redis: too few replicas are enough", Dir: "internal/redis", Find: `(err == nil &&) replicas < s\.cfg\.Replicas (\{ return backend\.Grant)`,
		Put: "$1 false $2", Test: "./redisbackend Replicas", Slow: true,
	},
	{
		Name: "redis: a hand-over is believed before the replicas have it", Dir: "internal/redis", Find: `if s\.store\.cfg\.Replicas > 0 \{`,
		Put: "if false {", Test: "./redisbackend Replicas", Slow: true,
	},
	{
		Name: "go-redis: a request without answer is sent again", Dir: "redisbackend", Find: `(NoRetry\(\) bool \{ return )true`, Put: "${1}false",
		Test: "./redisbackend LostReplyTo",
	},
	{
		Name: "go-redis: the source is sent after any error", Dir: "redisbackend", Find: `\|\| !redis\.HasErrorPrefix\(err, "NOSCRIPT"\) \{`,
		Put: "{", Test: "./redisbackend LostReplyTo",
	},
	{
		Name: "go-redis: what was sent is said not to be", Dir: "redisbackend", Find: `if p\.withdraw\(r\) \{`, Put: "if p.withdraw(r) || true {",
		Test: "./redisbackend ContextEnds|RequestTimeout",
	},
	{
		Name: "rueidis: the source is sent after any error", Dir: "rueidisbackend", Find: `replyCode\(err\); code == "NOSCRIPT" \{`,
		Put: `replyCode(err); err != nil || code == "NOSCRIPT" {`, Test: "./rueidisbackend SentOnce",
	},
	{
		Name: "rueidis: a silent connection is kept", Dir: "rueidisbackend", Find: `> 0 \{(\n\t+c\.closeAll)`,
		Put: "< 0 {$1", Test: "./rueidisbackend SilentConnection",
	},
	{
		Name: "rueidis: a busy connection counts as a silent one", Dir: "rueidisbackend", Find: `now-c\.moved >= ticks`, Put: "now-c.moved < 1<<62",
		Test: "./rueidisbackend SilentConnection",
	},
	{
		Name: "rueidis: a write waits for requests that may not come", Dir: "rueidisbackend", Find: `Gosched\(\).*\n\t+c\.goOn\(\)`, Put: "Gosched()",
		Test: "./rueidisbackend WriteWaits",
	},
	{
		Name: "locker: a watch that begins asks nothing", Dir: "locker", Find: `for !l\.verified\(ctx\) \{ // first`,
		Put:  "select {\ncase <-wakes:\ncase <-ctx.Done():\nreturn\n}\nfor !l.verified(ctx) { // first",
		Test: "./rueidisbackend TestConformance$/loss/guard", Slow: true,
	},
	{
		Name: "locker: a watch of what is no lock asks nothing", Dir: "locker", Find: `backend\.Refused\(err\) \{(\n\t+l\.verified)`,
		Put: "false {$1", Test: "./rueidisbackend ForeignKeyIsALoss", Slow: true,
	},
	{
		Name: "rueidis: an error reply is no answer", Dir: "rueidisbackend", Find: `store\.Failure\{Reply: reply\.Error\(\)\}`, Put: "store.Failure{}",
		Test: "./rueidisbackend Refusals",
	},
	{
		Name: "redis: who does not hold saves", Dir: "internal/redis/script",
		Find: `if leaves and code == OK then leave_state\(ARGV\[5\]`,
		Put:  `if leaves then leave_state(ARGV[5]`, Test: "./redisbackend TestConformance$/state/not-",
	},
	{
		Name: "redis: a renewal by who does not hold saves", Dir: "internal/redis/script",
		Find: `if leaves and code == OK then leave_state\('0'`,
		Put:  `if leaves then leave_state('0'`, Test: "./redisbackend TestConformance$/state/not-",
	},
	{
		Name: "redis: handed over with the state before the last", Dir: "internal/redis/script",
		Find: `saving or redis\.pcall`,
		Put:  `redis.pcall`, Test: "./redisbackend TestConformance$/state/handed",
	},
	{
		Name: "redis: half a release is written when out of memory", Dir: "internal/redis/script",
		Find: `if saving then write\(false, `,
		Put:  `if saving then redis.pcall(`, Test: "./internal/redis/script State",
	},
	{
		Name: "redis: a mark is not heeded", Dir: "internal/redis/script",
		Find: `if left > 0 then return commit`,
		Put:  `if false then return commit`, Test: "./redisbackend TestConformance$/early/refused",
	},
}
