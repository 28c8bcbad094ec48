package main

// The defects in the Lua, on a real Redis.
var luaMutants = []mutant{
	{
		"lua: anybody may release", "internal/redis/script/fast/release.lua",
		"if who == id then", "if who then", "./redisbackend", "Conformance",
	},
	{
		"lua: a server that forgot goes on granting", "internal/redis/script/common/guard.lua",
		"if rest > 0 then closed = {rest, why} end", "", "./internal/redis/script", "Guard",
	},
	{
		"lua: a promotion goes unnoticed", "internal/redis/script/common/guard.lua",
		"elseif known ~= life then", "elseif false then", "./internal/redis/script", "Guard",
	},
	{
		"lua: another max_ttl lets the next one in", "internal/redis/script/common/guard.lua",
		"if unfit then closed = {1, 'of another rule'} end", "", "./internal/redis/script", "Guard",
	},
	{
		"lua: another max_ttl is no reason to refuse", "internal/redis/script/common/fit.lua",
		"if unfit then return unfit end", "", "./internal/redis/script", "Guard",
	},
	{
		"lua: who finds the server changed writes his own rule", "internal/redis/script/common/guard.lua",
		"elseif rule ~= ours then", "elseif rule ~= ours and known == life then", "./internal/redis/script", "Guard",
	},
	{
		"lua: the grace is no part of the rule", "internal/redis/script/common/guard.lua",
		"elseif rule ~= ours then", "elseif string.match(rule, '^%d+') ~= longest then", "./internal/redis/script", "Guard",
	},
	{
		"lua: tokens run away from the clock", "internal/redis/script/common/holders.lua",
		"math.max(1, math.min(c.reserve, math.max(us, c.floor or 0) + 10000 - token))", "c.reserve", "./internal/redis/script", "Tokens",
	},
	{
		"lua: a replica renews", "internal/redis/script/fast/renew.lua",
		"local r = redis.pcall('PEXPIRE', K, math.max(left, ARGV[2] + 1) + margin)",
		"if left > ARGV[2] + 1 then return OK end local r = redis.pcall('PEXPIRE', K, math.max(left, ARGV[2] + 1) + margin)",
		"./internal/redis/script", "Replica",
	},
	{
		"redis: a message grants before the replicas have it", "internal/redis/watch.go",
		"if s.store.cfg.Replicas > 0 {", "if false {", "./redisbackend", "TestReplicas",
	},
	{
		"redisbackend: waits for replicas as long again where the script was unknown", "redisbackend/replicas.go",
		"min(limit, time.Until(r.Ctx.Limit)/2)", "limit", "./redisbackend", "TestStart$",
	},
	{
		"redis: no guard where others have one", "internal/redis/check.go",
		"err = s.checkMark(ctx)", "", "./redisbackend", "Unguarded",
	},
	{
		"locker: All waits for what it gives back", "locker/all.go",
		"\tpatiently(done)\n\tselect {", "\t<-done\n\tselect {", "./locker", "AllKeeps",
	},
	{
		"lua: a flush goes unnoticed", "internal/redis/script/common/guard.lua",
		"since, why = now, 'new or flushed'", "since, why = 0, 'new or flushed'", "./internal/redis/script", "Guard",
	},
	{
		"lua: a release lets somebody in at a server that forgot", "internal/redis/script/common/holders.lua",
		"if closed then return false end", "", "./internal/redis/script", "Guard",
	},
	{
		"lua: dialect: anybody may release", "internal/redis/script/dialect/release.lua",
		"if o == id then r", "if o then r", "./internal/redis/script", "Dialect",
	},
	{
		"lua: dialect: a late attempt is granted", "internal/redis/script/dialect/acquire.lua",
		"if buried() then return {LOST} end", "", "./internal/redis/script", "Dialect",
	},
	{
		"lua: anybody may hand over", "internal/redis/script/fast/hand.lua",
		"and h[2] == id and", "and h[2] and", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: a lapsed place is handed the lock", "internal/redis/script/fast/hand.lua",
		"tonumber(ends) > now and", "", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: a grant that is handed over has an old token", "internal/redis/script/fast/hand.lua",
		"math.max(h[4] + 1, us)", "us - 1000000", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: a short lease is not handed over as one", "internal/redis/script/fast/hand.lua",
		"lease + keep + 1))", "keep + 1))", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: anybody relays", "internal/redis/script/fast/relay.lua",
		"if who == id and", "if who and", "./internal/redis/script", "Relay",
	},
	{
		"lua: a relay past the end of the lease", "internal/redis/script/fast/relay.lua",
		"lives - margin > 0 then", "lives > 0 then", "./internal/redis/script", "Relay",
	},
	{
		"lua: a relay's token is an old one", "internal/redis/script/fast/relay.lua",
		"math.max(f + 1, us)", "us - 1000000", "./internal/redis/script ./redisbackend", "Relay|Equivalence|Conformance",
	},
	{
		"lua: a relay during the quarantine", "internal/redis/script/fast/relay.lua",
		"and not closed then", "then", "./internal/redis/script", "Relay",
	},
	{
		"lua: who comes along stands in line twice", "internal/redis/script/fast/hand.lua",
		"and h[6] and not h[7] then", "and h[6] then", "./internal/redis/script", "Relay",
	},
	{
		"lua: a relay of a hold that is over", "internal/redis/script/fast/hand.lua",
		"(not along.linger or tonumber(h[3]) > now)", "true", "./internal/redis/script", "Relay",
	},
	{
		"lua: a place behind a lease that ran out", "internal/redis/script/fast/stand.lua",
		"o ~= id and x > now and", "o ~= id and", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: a second place", "internal/redis/script/fast/stand.lua",
		"seq = qh and h[8]", "seq = false", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: a sign of life from behind a dead head", "internal/redis/script/fast/stand.lua",
		"math.min(ends, head) <= now", "tonumber(ends) <= now", "./internal/redis/script", "SignOfLife",
	},
	{
		"lua: a place that has lapsed lasts longer", "internal/redis/script/fast/stand.lua",
		"math.min(ends, head) <= now", "tonumber(head) <= now", "./internal/redis/script", "SignOfLife|Lapsed",
	},
	{
		"lua: no sign of life without memory", "internal/redis/script/fast/stand.lua",
		"if refused and not left then", "if refused then", "./internal/redis/script", "SignOfLife",
	},
	{
		"lua: gaps are counted in", "internal/redis/script/fast/stand.lua",
		"or qt - qh + 1 ~= qn or", "or", "./internal/redis/script", "SignOfLife",
	},
	{
		"lua: a sign of life moves the place of another", "internal/redis/script/fast/stand.lua",
		"left = {tonumber(ends), left}", "left = {tonumber(ends), 'x ' .. ARGV[3]}", "./internal/redis/script", "SignOfLife",
	},
	{
		"lua: the first in line frees the lock", "internal/redis/script/fast/stand.lua",
		"'o', o, 'x', string", "'x', string", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: anybody may release where others wait", "internal/redis/script/release.lua",
		"if o == id then", "if o then", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: no tombstone is left", "internal/redis/script/release.lua",
		"if tomb > 0 then bury(tomb) end", "", "./redisbackend", "Conformance",
	},
	{
		"lua: tombstones are not looked at", "internal/redis/script/acquire.lua",
		"if buried() then return {LOST} end", "", "./redisbackend", "Conformance",
	},
	{
		"lua: a repeat is refused", "internal/redis/script/acquire.lua",
		"if token then return commit", "if false then return commit", "./redisbackend", "Conformance",
	},
	{
		"lua: renewal revives", "internal/redis/script/fast/renew.lua",
		"if left > 0 then", "if true then", "./redisbackend", "Conformance",
	},
	{
		"lua: renewal shortens", "internal/redis/script/fast/renew.lua",
		"math.max(left, ARGV[2] + 1)", "ARGV[2] + 1", "./redisbackend", "Conformance",
	},
	{
		"lua: anybody may renew", "internal/redis/script/fast/renew.lua",
		"if who == id then", "if who then", "./redisbackend", "Conformance",
	},
	{
		"lua: token from the clock alone", "internal/redis/script/fast/acquire.lua",
		"if f >= us then token = f + 1 end", "", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: token from the counter alone", "internal/redis/script/fast/acquire.lua",
		"if f >= us then token = f + 1 end", "token = f + 1", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: release without a wake-up", "internal/redis/script/fast/release.lua",
		"redis.pcall('PUBLISH', K .. ':free', 'free')", "", "./redisbackend", "Conformance",
	},
	{
		"lua: foreign hashes are taken for locks", "internal/redis/script/common/head.lua",
		"if h[1] ~= 'h2' then", "if h[1] and h[1] ~= 'h2' then", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: the line is overtaken", "internal/redis/script/acquire.lua",
		"if fits(c) and (qn == 0 or gm == 'r') then", "if fits(c) then", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: a repeat takes another place", "internal/redis/script/acquire.lua",
		"  if keeps then", "  if false then", "./internal/redis/script", ".",
	},
	{
		"lua: who is cancelled stays in line", "internal/redis/script/release.lua",
		"  strike(seq, at)", "", "./redisbackend ./internal/redis/script", ".",
	},
	{
		"lua: a lapsed place is let in", "internal/redis/script/common/line.lua",
		"elseif e.ends <= now then", "elseif false then", "./internal/redis/script", ".",
	},
	{
		"lua: a release hands nothing over", "internal/redis/script/release.lua",
		"\nadv()\n", "\n", "./internal/redis/script", ".",
	},
	{
		"lua: a permit too many", "internal/redis/script/common/holders.lua",
		"return gn < gl and", "return gn <= gl and", "./internal/redis/script", ".",
	},
	{
		"lua: two limits of one semaphore", "internal/redis/script/acquire.lua",
		"and gl ~= c.limit and not seq", "and false and not seq", "./internal/redis/script", ".",
	},
	{
		"lua: holders whose lease ran out stay", "internal/redis/script/common/holders.lua",
		"if e.ends > now then ga = math.min(ga, e.ends) else drop(n, e) end", "ga = math.min(ga, e.ends)", "./internal/redis/script", ".",
	},
	{
		"lua: running leases are dropped with those that ran out", "internal/redis/script/common/holders.lua",
		"if e.ends > now then ga = math.min(ga, e.ends) else drop(n, e) end", "drop(n, e)", "./internal/redis/script", ".",
	},
	{
		"lua: one script does everything", "internal/redis/script/common/change.lua",
		"local STEPS, more = 128, false", "local STEPS, more = 4000, false", "./internal/redis/script", ".",
	},
	{
		"lua: a grant that is handed over is not told", "internal/redis/script/common/commit.lua",
		"redis.pcall('PUBLISH', base", "text(0, base", "./redisbackend", "HandOff|OneChannel",
	},
}
