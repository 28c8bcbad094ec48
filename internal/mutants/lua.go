package main

// The defects in the Lua, on a real Redis.
var luaMutants = []mutant{
	{
		"lua: anybody may release", "internal/redisclaim/fast/release.lua",
		"if who == id then", "if who then", "./redisbackend", "Conformance",
	},
	{
		"lua: a server that forgot goes on granting", "internal/redisclaim/common/guard.lua",
		"if rest > 0 then closed = {rest, why} end", "", "./internal/redisclaim", "Guard",
	},
	{
		"lua: a promotion goes unnoticed", "internal/redisclaim/common/guard.lua",
		"elseif known ~= life then", "elseif false then", "./internal/redisclaim", "Guard",
	},
	{
		"lua: another max_ttl lets the next one in", "internal/redisclaim/common/guard.lua",
		"if unfit then closed = {1, 'of another rule'} end", "", "./internal/redisclaim", "Guard",
	},
	{
		"lua: another max_ttl is no reason to refuse", "internal/redisclaim/common/fit.lua",
		"if unfit then return unfit end", "", "./internal/redisclaim", "Guard",
	},
	{
		"lua: who finds the server changed writes his own rule", "internal/redisclaim/common/guard.lua",
		"elseif rule ~= ours then", "elseif rule ~= ours and known == life then", "./internal/redisclaim", "Guard",
	},
	{
		"lua: the grace is no part of the rule", "internal/redisclaim/common/guard.lua",
		"elseif rule ~= ours then", "elseif string.match(rule, '^%d+') ~= longest then", "./internal/redisclaim", "Guard",
	},
	{
		"lua: tokens run away from the clock", "internal/redisclaim/common/holders.lua",
		"math.max(1, math.min(c.reserve, math.max(us, c.floor or 0) + 10000 - token))", "c.reserve", "./internal/redisclaim", "Tokens",
	},
	{
		"lua: a replica renews", "internal/redisclaim/fast/renew.lua",
		"local r = redis.pcall('PEXPIRE', K, math.max(left, ARGV[2] + 1) + margin)",
		"if left > ARGV[2] + 1 then return OK end local r = redis.pcall('PEXPIRE', K, math.max(left, ARGV[2] + 1) + margin)",
		"./internal/redisclaim", "Replica",
	},
	{
		"redisstore: a message grants before the replicas have it", "internal/redisstore/watch.go",
		"if s.store.cfg.Replicas > 0 {", "if false {", "./redisbackend", "TestReplicas",
	},
	{
		"redisbackend: waits for replicas as long again where the script was unknown", "redisbackend/replicas.go",
		"min(limit, time.Until(r.Ctx.Limit)/2)", "limit", "./redisbackend", "TestStart$",
	},
	{
		"redisstore: no guard where others have one", "internal/redisstore/check.go",
		"err = s.checkMark(ctx)", "", "./redisbackend", "Unguarded",
	},
	{
		"locker: All waits for what it gives back", "locker/all.go",
		"\tpatiently(done)\n\tselect {", "\t<-done\n\tselect {", "./locker", "AllKeeps",
	},
	{
		"lua: a flush goes unnoticed", "internal/redisclaim/common/guard.lua",
		"since, why = now, 'new or flushed'", "since, why = 0, 'new or flushed'", "./internal/redisclaim", "Guard",
	},
	{
		"lua: a release lets somebody in at a server that forgot", "internal/redisclaim/common/holders.lua",
		"if closed then return false end", "", "./internal/redisclaim", "Guard",
	},
	{
		"lua: dialect: anybody may release", "internal/redisclaim/dialect/release.lua",
		"if o == id then r", "if o then r", "./internal/redisclaim", "Dialect",
	},
	{
		"lua: dialect: a late attempt is granted", "internal/redisclaim/dialect/acquire.lua",
		"if buried() then return {LOST} end", "", "./internal/redisclaim", "Dialect",
	},
	{
		"lua: anybody may hand over", "internal/redisclaim/fast/hand.lua",
		"and h[2] == id and", "and h[2] and", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a lapsed place is handed the lock", "internal/redisclaim/fast/hand.lua",
		"tonumber(ends) > now and", "", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a grant that is handed over has an old token", "internal/redisclaim/fast/hand.lua",
		"math.max(h[4] + 1, us)", "us - 1000000", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a short lease is not handed over as one", "internal/redisclaim/fast/hand.lua",
		"lease + keep + 1))", "keep + 1))", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: anybody relays", "internal/redisclaim/fast/relay.lua",
		"if who == id and", "if who and", "./internal/redisclaim", "Relay",
	},
	{
		"lua: a relay past the end of the lease", "internal/redisclaim/fast/relay.lua",
		"lives - margin > 0 then", "lives > 0 then", "./internal/redisclaim", "Relay",
	},
	{
		"lua: a relay's token is an old one", "internal/redisclaim/fast/relay.lua",
		"math.max(f + 1, us)", "us - 1000000", "./internal/redisclaim ./redisbackend", "Relay|Equivalence|Conformance",
	},
	{
		"lua: a relay during the quarantine", "internal/redisclaim/fast/relay.lua",
		"and not closed then", "then", "./internal/redisclaim", "Relay",
	},
	{
		"lua: who comes along stands in line twice", "internal/redisclaim/fast/hand.lua",
		"and h[6] and not h[7] then", "and h[6] then", "./internal/redisclaim", "Relay",
	},
	{
		"lua: a relay of a hold that is over", "internal/redisclaim/fast/hand.lua",
		"(not along.linger or tonumber(h[3]) > now)", "true", "./internal/redisclaim", "Relay",
	},
	{
		"lua: a place behind a lease that ran out", "internal/redisclaim/fast/stand.lua",
		"o ~= id and x > now and", "o ~= id and", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a second place", "internal/redisclaim/fast/stand.lua",
		"seq = qh and h[8]", "seq = false", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a sign of life from behind a dead head", "internal/redisclaim/fast/stand.lua",
		"math.min(ends, head) <= now", "tonumber(ends) <= now", "./internal/redisclaim", "SignOfLife",
	},
	{
		"lua: a place that has lapsed lasts longer", "internal/redisclaim/fast/stand.lua",
		"math.min(ends, head) <= now", "tonumber(head) <= now", "./internal/redisclaim", "SignOfLife|Lapsed",
	},
	{
		"lua: no sign of life without memory", "internal/redisclaim/fast/stand.lua",
		"if refused and not left then", "if refused then", "./internal/redisclaim", "SignOfLife",
	},
	{
		"lua: gaps are counted in", "internal/redisclaim/fast/stand.lua",
		"or qt - qh + 1 ~= qn or", "or", "./internal/redisclaim", "SignOfLife",
	},
	{
		"lua: a sign of life moves the place of another", "internal/redisclaim/fast/stand.lua",
		"left = {tonumber(ends), left}", "left = {tonumber(ends), 'x ' .. ARGV[3]}", "./internal/redisclaim", "SignOfLife",
	},
	{
		"lua: the first in line frees the lock", "internal/redisclaim/fast/stand.lua",
		"'o', o, 'x', string", "'x', string", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: anybody may release where others wait", "internal/redisclaim/release.lua",
		"if o == id then", "if o then", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: no tombstone is left", "internal/redisclaim/release.lua",
		"if tomb > 0 then bury(tomb) end", "", "./redisbackend", "Conformance",
	},
	{
		"lua: tombstones are not looked at", "internal/redisclaim/acquire.lua",
		"if buried() then return {LOST} end", "", "./redisbackend", "Conformance",
	},
	{
		"lua: a repeat is refused", "internal/redisclaim/acquire.lua",
		"if token then return commit", "if false then return commit", "./redisbackend", "Conformance",
	},
	{
		"lua: renewal revives", "internal/redisclaim/fast/renew.lua",
		"if left > 0 then", "if true then", "./redisbackend", "Conformance",
	},
	{
		"lua: renewal shortens", "internal/redisclaim/fast/renew.lua",
		"math.max(left, ARGV[2] + 1)", "ARGV[2] + 1", "./redisbackend", "Conformance",
	},
	{
		"lua: anybody may renew", "internal/redisclaim/fast/renew.lua",
		"if who == id then", "if who then", "./redisbackend", "Conformance",
	},
	{
		"lua: token from the clock alone", "internal/redisclaim/fast/acquire.lua",
		"if f >= us then token = f + 1 end", "", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: token from the counter alone", "internal/redisclaim/fast/acquire.lua",
		"if f >= us then token = f + 1 end", "token = f + 1", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: release without a wake-up", "internal/redisclaim/fast/release.lua",
		"redis.pcall('PUBLISH', K .. ':free', 'free')", "", "./redisbackend", "Conformance",
	},
	{
		"lua: foreign hashes are taken for locks", "internal/redisclaim/common/head.lua",
		"if h[1] ~= 'h2' then", "if h[1] and h[1] ~= 'h2' then", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: the line is overtaken", "internal/redisclaim/acquire.lua",
		"if fits(c) and (qn == 0 or gm == 'r') then", "if fits(c) then", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a repeat takes another place", "internal/redisclaim/acquire.lua",
		"  if keeps then", "  if false then", "./internal/redisclaim", ".",
	},
	{
		"lua: who is cancelled stays in line", "internal/redisclaim/release.lua",
		"  strike(seq, at)", "", "./redisbackend ./internal/redisclaim", ".",
	},
	{
		"lua: a lapsed place is let in", "internal/redisclaim/common/line.lua",
		"elseif e.ends <= now then", "elseif false then", "./internal/redisclaim", ".",
	},
	{
		"lua: a release hands nothing over", "internal/redisclaim/release.lua",
		"\nadv()\n", "\n", "./internal/redisclaim", ".",
	},
	{
		"lua: a permit too many", "internal/redisclaim/common/holders.lua",
		"return gn < gl and", "return gn <= gl and", "./internal/redisclaim", ".",
	},
	{
		"lua: two limits of one semaphore", "internal/redisclaim/acquire.lua",
		"and gl ~= c.limit and not seq", "and false and not seq", "./internal/redisclaim", ".",
	},
	{
		"lua: holders whose lease ran out stay", "internal/redisclaim/common/holders.lua",
		"if e.ends > now then ga = math.min(ga, e.ends) else drop(n, e) end", "ga = math.min(ga, e.ends)", "./internal/redisclaim", ".",
	},
	{
		"lua: running leases are dropped with those that ran out", "internal/redisclaim/common/holders.lua",
		"if e.ends > now then ga = math.min(ga, e.ends) else drop(n, e) end", "drop(n, e)", "./internal/redisclaim", ".",
	},
	{
		"lua: one script does everything", "internal/redisclaim/common/change.lua",
		"local STEPS, more = 128, false", "local STEPS, more = 4000, false", "./internal/redisclaim", ".",
	},
	{
		"lua: a grant that is handed over is not told", "internal/redisclaim/common/commit.lua",
		"redis.pcall('PUBLISH', base", "text(0, base", "./redisbackend", "HandOff|OneChannel",
	},
}
