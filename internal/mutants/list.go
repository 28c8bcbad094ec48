package main

import "slices"

// mutants are the defects, about 500. To add one: mark the line with a comment that ends in
// "safeguard:" and a name, say here what goes wrong without it, how to take it away, and the
// narrowest test that must notice. go run ./internal/mutants -run 'name' tries it.
func mutants() []mutant {
	return slices.Concat(belief, withdrawal, redis, quorum, etcd, others, net)
}

// Belief in a hold: grants, renewals, deadlines, and leases that are handed on.
var belief = []mutant{
	{
		Name: "a deadline is counted from the answer", At: "grant-deadline",
		Find: `(\w+), (\w+) := (\w+)\(\w+, (max\(.*\))\), (.*)$`, Put: `$1, $2 := $3($5, $4), $5`,
		Test: "./locker SuspendDuringTheRequest",
	},
	{
		Name: "a renewed deadline is counted from the answer", At: "renewal-deadline",
		Find: twoLines, Put: swapped, Test: "./locker RenewalMovesDeadline",
	},
	{
		Name: "no allowance for clocks that differ in speed", At: "drift",
		Find: `(\w+)-\w+/\w+-\w+\)`, Put: "$1)", Test: "./locker RenewalAfterSuspend",
	},
	{
		Name: "time asleep does not count", At: "suspend", Find: condition, Put: never,
		Test: "./locker SuspendedTime",
	},
	{
		Name: "a grant that comes late is believed", At: "late-grant", Find: condition, Put: never,
		Test: "./locker SuspendDuringTheRequest",
	},
	{
		Name: "the store says lost, and the hold goes on", At: "refuted", Find: `:= (.*)$`,
		Put: `:= false && ($1)`, Test: "./locker RefutedDuringUnlock",
	},
	{
		Name: "a lease that was handed over is detached as short as it is", At: "detached-for-long",
		Find: condition, Put: never,
		Test: "./locker DetachAfterAHandOver",
	},
	{
		Name: "any note is sent", At: "note-fits", Find: condition, Put: never,
		Test: "./locker NoteAndOnSuccessRefuse",
	},
	{
		Name: "who says why holds by a lease that says something else", At: "notes-apart",
		Find: `, __\.__\}`, Put: `, ""}`, Test: "./locker OtherNotes",
	},
	{
		Name: "an adopted hold does not say why", At: "adopted-note", Find: `, __\(__\.__\), func`,
		Put: ", func", Test: "./locker AdoptedNote",
	},
	{
		Name: "a run that failed counts although only success should", At: "on-success",
		Find: condition, Put: always, Test: "./locker OnSuccess$",
	},
	{
		Name: "a loss does not say why", At: "loss-says-why", Find: condition, Put: always,
		Test: "./locker LossSaysWhy",
	},
	{
		Name: "a renewal that an Unlock cut short is a failure", At: "renewal-withdrawn",
		Find: `, errors\.Is\(.*\):`, Put: ":", Test: "./locker UnlockWithdrawsARenewal",
	},
	{
		Name: "renewals that fail no more are not told of", At: "trouble-over", Find: condition,
		Put: never, Test: "./locker RenewalsFailForAWhile",
	},
	{
		Name: "an Unlock that saves gives up early", At: "release-leaves", Find: condition,
		Put:  never,
		Test: "./locker UnlockGivesUp",
	},
	{
		Name: "the first request of an Unlock takes no time", At: "first-release",
		Find: `(__\(.*\)-)(.*)\)`, Put: "${1}0*$2)", Test: "./locker UnlockGivesUp",
	},
	{
		Name: "an Unlock that only releases takes as long as one that saves", At: "release-leaves",
		Find: condition, Put: always, Test: "./locker UnlockGivesUp",
	},
	{
		Name: "no answer to a renewal is a yes", At: "renewal-answer", Find: condition, Put: always,
		Test: "./locker SlowHandOver",
	},
	{
		Name: "only the timer ends belief", At: "belief", Find: condition, Put: never,
		Test: "./locker SuspendedTime",
	},
	{
		Name: "a hold that ran out is unlocked with nil", At: "unlock-expired", Find: condition,
		Put: never, Test: "./locker UnnoticedDeadline",
	},
	{
		Name: "an Unlock after Close and the deadline is nil", At: "unlock-after-close",
		Find: ` && \w+ < __:`, Put: ":",
		Test: "./locker CloseAndTheDeadline",
	},
	{
		Name: "renewals without regard to their deadlines", At: "renewal-order",
		Find: `return (__) < (__)`, Put: "return $1 > $2",
		Test: "./locker OrderOfTheirDeadlines",
	},
	{
		Name: "renewals wait for what was overtaken", At: "renewals-overtaken",
		Find: `(__) = max\(.*\)`, Put: "$1++",
		Test: "./locker SilentPart",
	},
	{
		Name: "renewals wait while none of those in flight ends", At: "renewals-stalled",
		Find: `\{ (__)\((__)\) \}`, Put: "{ $1(min(0, $2)) }",
		Test: "./locker SilentPart",
	},
	{
		Name: "renewals that were not answered go first", At: "unanswered-last", Find: condition,
		Put: never, Test: "./locker SilentPart",
	},
	{
		Name: "a lease is handed on with tokens beyond those reserved", At: "reserved-tokens",
		Find: `\|\| __\.Fencing && .* \{`, Put: "{",
		Test: "./locker NoMoreTokens",
	},
	{
		Name: "two holds of a lease have one token", At: "token-each", Find: statement,
		Put:  skipped,
		Test: "./locker InOrderWithOwnTokens",
	},
	{
		Name: "a lease that is refuted while it is handed on is believed",
		At:   "refuted-between-holds", Find: condition, Put: never,
		Test: "./locker RefutedWhileItIsHandedOn",
	},
	{
		Name: "a hand-over of an earlier grant is believed", At: "hand-over-token",
		Find: `__\.Token <= __ \|\| `, Put: "",
		Test: "./locker LateHandOver",
	},
	{
		Name: "a hand-over counts from the message", At: "hand-over-deadline",
		Find: `(\w+), (\w+) := (\w+)\(__, (__)\), (.*)$`, Put: `$1, $2 := $3($5, $4), $5`,
		Test: "./locker HandOverIsBelieved",
	},
	{
		Name: "a hand-over counts from the answer to the attempt before it",
		At:   "refused-from-sent", Find: `= (__), (.*)$`, Put: "= $1+3e9, $2",
		Test: "./locker HandOverIsCountedFromBefore",
	},
	{
		Name: "a hand-over counts from a heartbeat that was not answered",
		At:   "unanswered-heartbeat",
		Find: `((__\.__), .* = (__), .*)\n([\s\S]*?IsZero\(\) \{\n.*\n.*\})\n`,
		Put:  "$1\n$4\n$2 = $3\n",
		Test: "./locker HandOverIsNotCountedFromAnUnanswered",
	},
	{
		Name: "a context that is made while its hold ends never ends", At: "context-looks-again",
		Find: `(.*), \w+ = (.*), __\.__$`, Put: "$1 = $2",
		Test: "./locker ContextThatIsMadeWhile",
	},
	{
		Name: "of a release that is repeated the last answer counts", At: "release-unknown-stays",
		Find: `= \w+ \|\| (.*)$`, Put: "= $1",
		Test: "./locker ReleaseWithoutAnAnswerIsRemembered",
	},
	{
		Name: "a hand-over counts from the answer to a heartbeat", At: "heartbeat-deadline",
		Find: `(.*)\n([\s\S]*?\.Heartbeat\(.*)$`, Put: "$2\n$1",
		Test: "./locker HandOverAfterAHeartbeat",
	},
	{
		Name: "who waited while a job ran runs it again", At: "once-awaited", Find: statement,
		Put: skipped, Test: "./locker OnceThatTakesLonger",
	},
	{
		Name: "every lease is watched for its loss", At: "watched-bound", Find: condition,
		Put:  never,
		Test: "./locker WatchedLeasesAreBounded",
	},
	{
		Name: "work that is cut off by its caller's time does not hear so", At: "caller-late",
		Find: condition, Put: never, Test: "./locker CallerIsLate",
	},
	{
		Name: "Lead drops what fn returned when it was lost", At: "lead-failed", Find: statement,
		Put: skipped, Test: "./locker LeadTells",
	},
	{
		Name: "of two modes the last one counts", At: "two-modes", Find: condition, Put: never,
		Test: "./locker OptionsAreRefused",
	},
	{
		Name: "a Lock whose Binder outlives its hold does not say why", At: "bound-late",
		Find: condition, Put: never, Test: "./locker HoldThatEndsInTheBinder",
	},
	{
		Name: "what updates a value does not hear of a loss", At: "update-context",
		Find: `\w+\{&\w+\}, `, Put: "context.Background(), ",
		Test: "./locker UpdateContext",
	},
	{
		Name: "OncePer leaves no mark", At: "once-mark", Find: statement, Put: skipped,
		Test: "./locker OnceCounts",
	},
	{
		Name: "what a guard protects stays open after a loss", At: "hook-at-loss", Find: condition,
		Put: never, Test: "./locker Scoped",
	},
	{
		Name: "an Unlock that lost its lease while it closed is nil", At: "lost-in-hook",
		Find: `return (\w+), (\w+) && .*$`, Put: "return $1, $2",
		Test: "./locker Scoped",
	},
	{
		Name: "the value of a key comes back after a loss that its renewal tells",
		At:   "kept-after-loss", Find: `case (.*) && .*:`, Put: "case $1:",
		Test: "./locker PerKey",
	},
	{
		Name: "a lease that is handed on at MaxHold is renewed no more", At: "timer-after-max-hold",
		Find: condition, Put: never,
		Test: "./locker UnlockIsQuicker",
	},
	{
		Name: "of permits, what a hold that is over has open is in nobody's way",
		At:   "scoped-permits", Find: `&& .*$`, Put: "&& false",
		Test: "./locker ScopedPermitWaitsForAHoldThatIsOver",
	},
	{
		Name: "what another Client of a backend has open is in nobody's way", At: "scoped-clients",
		Find: `(__\.__)\.__ != (__\.__)\.__,`, Put: "$1 != $2,",
		Test: "./locker ScopedNextOfAnotherClient",
	},
	{
		Name: "an Unlock that closed for long judges by the time when it began",
		At:   "closed-for-long", Find: `\w+ = (.*\(\)).*$`, Put: "_ = $1",
		Test: "./locker UnlockAfterCloseThatCloses",
	},
	{
		Name: "what is opened for a hold that ends meanwhile stays open", At: "opened-too-late",
		Find: `, __\.__\(nil, nil\)\)`, Put: ")",
		Test: "./locker ScopedClosesWhatWasOpened",
	},
	{
		Name: "an Unlock that gave up is not made behind the caller", At: "release-behind",
		Find: statement, Put: skipped, Test: "./locker UnlockThatGaveUp",
	},
	{
		Name: "a run that MaxHold has cut off counts", At: "cut-off-unnoted",
		Find: ` && \w+ == nil && `, Put: " && ", Test: "./locker OnceDoesNotNoteARun",
	},
	{
		Name: "who adopts a hold leaves no tombstone of it", At: "adopted-tombstone",
		Find: `(__\.__), __\.__, (__\.__) = (.*), false, (.*)$`,
		Put:  "$1, $2 = $3, $4", Test: "./locker LateAttemptOfAHold",
	},
	{
		Name: "a job that waits heeds who was in its way last", At: "once-awaited-first",
		Find: ` && __\.__\.__ == 0 \{`, Put: " {",
		Test: "./locker OnceAwaitsWhoWasInItsWayFirst",
	},
	{
		Name: "what did not close is detached", At: "detached-closed", Find: ` && \w+ == nil:`,
		Put: ":", Test: "./locker Detach",
	},
}

// What is not wanted any more is taken back, and nothing else is.
var withdrawal = []mutant{
	{
		Name: "no tombstone for a claim without an answer", At: "withdraw-tombstone", Find: `= !__`,
		Put: "= true", Test: "./locker UnansweredClaim",
	},
	{
		Name: "a claim without an answer is forgotten", At: "withdraw", Find: condition,
		Put:  always,
		Test: "./locker CloseWaitsForCleanUp",
	},
	{
		Name: "a grant after the cancellation is kept", At: "cancelled-grant", Find: condition,
		Put: never, Test: "./locker RacedWithCancel",
	},
	{
		Name: "all who give up together are woken at once", At: "crowd", Find: condition,
		Put:  never,
		Test: "./locker ComeBackByAndBy",
	},
	{
		Name: "who gave up is given the lease", At: "gave-up", Find: statement, Put: skipped,
		Test: "./locker PassedOver",
	},
	{
		Name: "places of those who gave up are not waited for", At: "withdrawn-before-return",
		Find: `__\((__\(.*\))\)$`, Put: "$1",
		Test: "./locker Withdrawn",
	},
	{
		Name: "those who give up together are withdrawn one by one", At: "withdrawn-together",
		Find: `\(__, `, Put: "(1, ", Test: "./locker WithdrawnTogether",
	},
	{
		Name: "those who give up together are withdrawn a few at a time", At: "withdrawn-full",
		Find: `\(__ == 0 \|\| .*\):`, Put: "true:",
		Test: "./locker WithdrawnTogether",
	},
	{
		Name: "who gives up waits behind a release that is repeated", At: "withdrawn-first",
		Find: `return (.*)$`, Put: "return true || $1", Test: "./locker GivingUpBesideARepeated",
	},
	{
		Name: "a lock that was lost says why the first renewal failed", At: "last-trouble",
		Find: `(\S+) = (\w+)`, Put: "if $1 == nil || $2 == nil { $1 = $2 }",
		Test: "./locker RenewalsFailForAWhile",
	},
	{
		Name: "a withdrawal without an answer is made once", At: "withdrawn-again", Find: statement,
		Put: skipped, Test: "./locker WithdrawnFromASilentStore",
	},
	{
		Name: "Close leaves what is owed to the requests in flight", At: "owed-closed",
		Find: statement, Put: skipped, Test: "./locker CloseOutOfTimeSends",
	},
	{
		Name: "owed releases without a bound", At: "owed-bound", Find: condition, Put: never,
		Test: "./locker OwedReleasesAreBounded",
	},
	{
		Name: "places of those who gave up are dropped at a store that answers", At: "owed-bound",
		Find: ` && __\(__, (\w+)\)`, Put: " && $1 > 0",
		Test: "./locker Withdrawn",
	},
	{
		Name: "places of those who gave up are dropped after a second", At: "owed-bound",
		Find: `(__\(__, \w+)\)`, Put: "$1/30)",
		Test: "./locker Withdrawn",
	},
	{
		Name: "a release that was refused before is taken for made", At: "release-refused-before",
		Find: ` && \w+:`, Put: ":",
		Test: "./locker RefusedAndThenLost",
	},
	{
		Name: "a save that found the hold gone is taken for made", At: "save-unconfirmed",
		Find: condition, Put: always,
		Test: "./locker Store",
	},
	{
		Name: "a mark that found the hold gone is taken for made", At: "mark-unconfirmed",
		Find: `(if .*) && !.* \{`, Put: "$1 {",
		Test: "./locker Once",
	},
	{
		Name: "a ticket is good twice", At: "ticket", Find: `if (\w+) == nil \{`,
		Put:  "if $1 == nil || errors.Is($1, backend.ErrLost) {",
		Test: "./locker AdoptOnce",
	},
	{
		Name: "a ticket without an answer is good", At: "ticket", Find: `if (\w+) == nil \{`,
		Put:  "if !errors.Is($1, backend.ErrLost) {",
		Test: "./locker AdoptUnanswered",
	},
}

// Redis: what is compared, tokens, the guard, tombstones, and what goes without a script.
var redis = []mutant{
	{
		Name: "native: taken whoever has it", At: "native-take",
		Find: `"IFEQ", script\.Free\(.*?\), `, Put: "",
		Test: "./internal/redis Native",
	},
	{
		Name: "native: freed whoever has it", At: "native-free",
		Find: `"IFEQ", script\.Held\(.*?\),`, Put: "", Test: "./internal/redis Native",
	},
	{
		Name: "native: sent again without an answer", At: "native-once", Find: statement,
		Put:  skipped,
		Test: "./internal/redis Native",
	},
	{
		Name: "native: tokens from the estimate alone", At: "native-token",
		Find: `max\(.*, (\w+)\)`, Put: "$1",
		Test: "./internal/redis Native",
	},
	{
		Name: "native: a counter ahead of the clock is not kept", At: "native-counter-kept",
		Find: `max\(__, (\w+)\)`, Put: "$1",
		Test: "./internal/redis Native",
	},
	{
		Name: "native: a counter is kept by the clock of another server", At: "native-counter-kept",
		Find: `((\w+) := .*\((\w+)\.Microseconds\(\)\))\n([\s\S]*?)"PXAT", .*$`,
		Put:  "$1\n$4\"PX\", strconv.FormatInt($3.Milliseconds(), 10)); _ = $2",
		Test: "./internal/redis Native",
	},
	{
		Name: "native: all primaries have one clock", At: "native-clock-of-one", Find: ` && !__ \{`,
		Put: " {", Test: "./internal/redis Native",
	},
	{
		Name: "native: an estimate outlives its connection", At: "native-clock-of-connection",
		Find: `__ != __\.Load\(\) \|\| `, Put: "",
		Test: "./internal/redis Native",
	},
	{
		Name: "native: a job's mark, or a value, is not left", At: "native-leaves",
		Find: ` \|\| __\.Save != nil \|\| __\.NotBefore > 0 \{`,
		Put:  " {", Test: "./internal/redis Native",
	},
	{
		Name: "native: a job's mark is not heeded", At: "native-mark",
		Find: ` && __\.NotBefore == 0`, Put: "",
		Test: "./internal/redis Native",
	},
	{
		Name: "native: no answer is a no", At: "native-unknown", Find: `return `,
		Put: "return false && ", Test: "./internal/redis Native",
	},
	{
		Name: "lua: anybody may release", At: "release-owner",
		Find: `string\.find\((\w+), .*\) == (\w+) \+ 1`, Put: "#$1 > $2",
		Test: "./internal/redis/script DeadWaiters",
	},
	{
		Name: "lua: anybody hands over", At: "hand-over-owner", Find: `\w+\[2\] ~= \w+ or `,
		Put:  "",
		Test: "./internal/redis/script CancelAgainstGrant",
	},
	{
		Name: "lua: a server that forgot hands over", At: "guard-hand-over",
		Find: `( and \w+) and not \w+( and not)`, Put: "$1$2",
		Test: "./internal/redis/script Guard",
	},
	{
		Name: "lua: a server that forgot grants", At: "guard", Find: luaCondition, Put: luaNever,
		Test: "./internal/redis/script GuardKeeps",
	},
	{
		Name: "lua: who goes with others ends whoever holds", At: "forget-owner",
		Find: `if __ == \w+ then`, Put: "if lock.owner then",
		Test: "./redisbackend TestConformance/plain/release-all",
	},
	{
		Name: "lua: nobody is let in when several go", At: "releaseall-admits", Find: statement,
		Put: "", Test: "./internal/redis/script ReleaseAllLetsIn",
	},
	{
		Name: "lua: nobody is woken if the last of several was gone", At: "releaseall-any",
		Find: `, \w+ or (\w+)`, Put: ", $1",
		Test: "./redisbackend TestConformance/plain/release-all",
	},
	{
		Name: "lua: those who go together leave no tombstones", At: "releaseall-tombstone",
		Find: luaCondition, Put: luaNever,
		Test: "./internal/redis/script ReleaseAllLetsIn",
	},
	{
		Name: "lua: a replica says that several do not hold", At: "releaseall-replica",
		Find: ` else .* end`, Put: " end", Test: "./internal/redis/script AReplicaSaysNothing",
	},
	{
		Name: "rueidis: a key that several released is still held", At: "rueidis-release-all",
		Find: statement, Put: skipped, Test: "./rueidisbackend HeldAnswers",
	},
	{
		Name: "redis: the dialect says that it releases several at once", At: "dialect-release-all",
		Find: condition, Put: never,
		Test: "./redisbackend TestConformance/dialect/release-all",
	},
	{
		Name: "redis: thousands go in one batch, and are cut off together", At: "batch-bound",
		Find: `min\((.*), \w+\)`, Put: "min(${1}, ${1})", Test: "./redisbackend PipelineTakesHalf",
	},
	{
		Name: "locker: All joins the queue of a key behind the one that it waits for, " +
			"and leaves it",
		At: "all-in-order", Find: statement, Put: skipped, Test: "./locker AllGivesBack",
	},
	{
		Name: "locker: who waits in the process for a key of All's has no place in its queue",
		At:   "all-queues-behind", Find: statement, Put: skipped, Test: "./locker AllHasWaiters",
	},
	{
		Name: "locker: each of All's attempts has the whole limit", At: "all-in-its-limit",
		Find: statement, Put: skipped, Test: "./locker AllWithinItsLimit",
	},
	{
		Name: "locker: who gives a key of All back forgets that its holder died",
		At:   "all-took-over",
		Find: statement, Put: skipped, Test: "./locker AllTellsWhoDied",
	},
	{
		Name: "locker: All keeps a key behind the one that it waits for", At: "all-given-back",
		Find: statement, Put: skipped, Test: "./locker AllGivesBack",
	},
	{
		Name: "locker: All waits for a key of this process out of turn", At: "all-waits-in-turn",
		Find: condition, Put: never, Test: "./locker AllGivesBack",
	},
	{
		Name: "locker: All gives back what it did not ask for", At: "all-behind", Find: statement,
		Put: skipped, Test: "./locker AllEndsAt",
	},
	{
		Name: "locker: a grant of many goes to another's claim", At: "all-own-grant",
		Find: `= (\w+)\[(\w+)\]`, Put: "= $1[len($1)-1-$2]", Test: "./locker AllIsOne",
	},
	{
		Name: "locker: what was not released with others is", At: "all-not-released",
		Find: ` \|\| .* \{`, Put: " {", Test: "./locker AllUnlocksWhatIsLost",
	},
	{
		Name: "locker: All releases at one of several stores", At: "all-own-store", Find: condition,
		Put: never, Test: "./locker AllUnlocksAtEach",
	},
	{
		Name: "locker: two who unlock the same keys wait for each other", At: "all-unlocked-twice",
		Find: statement, Put: skipped, Test: "./locker AllIsUnlockedTwice",
	},
	{
		Name: "locker: who goes with others leaves no tombstone", At: "all-leaves", Find: condition,
		Put: never, Test: "./locker AllLeaves",
	},
	{
		Name: "lua: what another holds is taken with others", At: "try-all-free",
		Find: `if not (\w+) then .* end`, Put: "$1 = $1 or 0",
		Test: "./internal/redis/script TryAcquireAllEnds",
	},
	{
		Name: "lua: tokens of many keys are ahead of the clock", At: "try-all-near",
		Find: luaCondition, Put: luaNever,
		Test: "./internal/redis/script TryAll|TryAcquireAll",
	},
	{
		Name: "lua: a server that forgot grants many keys", At: "try-all-guard", Find: luaCondition,
		Put: luaNever, Test: "./internal/redis/script TryAllBehind",
	},
	{
		Name: "lua: anybody may release with others", At: "try-all-owner",
		Find: `string\.find\((\w+), .*\) == (\w+) \+ 1`, Put: "#$1 > $2",
		Test: "./internal/redis/script TryReleaseAllLeaves",
	},
	{
		Name: "redis: many keys go to the server of the first", At: "try-all-one-server",
		Find: ` \|\| .* \{`, Put: " {", Test: "./internal/redis ManyKeysAreOn",
	},
	{
		Name: "redis: many keys are held that no replica has", At: "replicas-try-all",
		Find: condition,
		Put:  never, Test: "./internal/redis ReplicasAreNeeded",
	},
	{
		Name: "rueidis: a key that was asked for among many is still held", At: "rueidis-try-all",
		Find: statement, Put: skipped, Test: "./rueidisbackend HeldAnswers",
	},
	{
		Name: "rueidis: a key that was released among many is still held",
		At:   "rueidis-try-release-all", Find: statement, Put: skipped,
		Test: "./rueidisbackend HeldAnswers",
	},
	{
		Name: "locker: All goes on when one of its locks is lost", At: "all-under-each",
		Find: statement, Put: skipped, Test: "./locker AllEnds",
	},
	{
		Name: "blame: who is named again held meanwhile", At: "bars-named-again", Find: condition,
		Put: never, Test: "./internal/blame NamedInTurn",
	},
	{
		Name: "tracing: what is not drawn is not told", At: "bars-others", Find: statement,
		Put: skipped, Test: "./tracing Bars",
	},
	{
		Name: "tracing: a hold that was handed over is said to be released", At: "bars-handed",
		Find: condition, Put: never, Test: "./tracing BarsOfPods/handoff",
	},
	{
		Name: "blame: a hold that is told of late is drawn beside the next", At: "bars-apart",
		Find: statement, Put: skipped, Test: "./internal/blame EndsLate",
	},
	{
		Name: "doctor: a cluster without replicas is told the TTL of a failover",
		At:   "ttl-on-cluster",
		Find: condition, Put: always, Test: "./internal/redis ClusterHasNoGuard",
	},
	{
		Name: "redis: who the primaries are is asked once a request is over", At: "silent-primary",
		Find: condition, Put: never, Test: "./redisbackend SilenceHasTheCluster",
	},
	{
		Name: "redis: a node that hangs is asked who the primaries are for as long as a request",
		At:   "topology-limit", Find: condition, Put: never, Test: "./redisbackend TopologyIsAsked",
	},
	{
		Name: "rueidis: who the primaries are is never asked", At: "rueidis-topology",
		Find: statement,
		Put:  skipped, Test: "./rueidisbackend TopologyIsReadAgain",
	},
	{
		Name: "redis: who may not touch a key does not hear which", At: "forbidden-keys",
		Find: `__\(".*", (\w+), \w+\)`, Put: "$1", Test: "./redisbackend ForbiddenKeys",
	},
	{
		Name: "redis: the dialect opens without its other key", At: "probe-side-key",
		Find: statement,
		Put:  "", Test: "./redisbackend ForbiddenKeys",
	},
	{
		Name: "redis: an error without its password is only unavailable", At: "redacted-class",
		Find: `(__), (__),`, Put: "$2, $1,",
		Test: "./redisbackend Redaction",
	},
	{
		Name: "redis: who goes with others saves nothing", At: "releaseall-leaves",
		Find: ` && \w+\.Save == nil`, Put: "",
		Test: "./redisbackend TestConformance/plain/release-all",
	},
	{
		Name: "lua: a run that a claim waited for is not heeded", At: "awaited",
		Find: ` or .* then`, Put: " then",
		Test: "./redisbackend TestConformance/plain/early",
	},
	{
		Name: "lua: a job is refused by the time of the run before", At: "own-time",
		Find: `if (\w+) == .* then`, Put: "if $1 then",
		Test: "./redisbackend TestConformance/plain/early",
	},
	{
		Name: "lua: a mark of a version before is not heeded", At: "own-time", Find: luaCondition,
		Put:  luaNever,
		Test: "./internal/redis/script RunAmongVersions",
	},
	{
		Name: "lua: who does not hold saves", At: "save-by-holder", Find: ` and .* then`,
		Put:  " then",
		Test: "./internal/redis/script StateOutOfMemory",
	},
	{
		Name: "lua: tombstones are not looked at", At: "tombstone", Find: luaCondition,
		Put:  luaNever,
		Test: "./internal/redis/script TombstoneOutlives",
	},
	{
		Name: "lua: tokens come from the clock alone", At: "token-counter", Find: luaCondition,
		Put:  luaNever,
		Test: "./internal/redis/script TokensStay",
	},
	{
		Name: "lua: anybody may renew", At: "renew-owner", Find: luaCondition, Put: luaNever,
		Test: "./internal/redis/script RenewalOnlyGrows",
	},
	{
		Name: "lua: a renewal revives", At: "renew-ended", Find: luaCondition, Put: luaNever,
		Test: "./internal/redis/script RenewalOnlyGrows",
	},
	{
		Name: "lua: running leases are dropped", At: "running-leases", Find: luaCondition,
		Put:  luaNever,
		Test: "./internal/redis/script Permits",
	},
	{
		Name: "lua: a lock is deleted while its slot moves", At: "moving-slot", Find: luaCondition,
		Put: luaNever, Test: "./internal/redissim MovingSlot",
	},
	{
		Name: "lua: what has yet to come with the slot was never saved", At: "moving-state",
		Find: ` or .* then`, Put: " then",
		Test: "./internal/redissim StateThatHasYetToCome",
	},
	{
		Name: "lua: an earlier grant's token is fenced in", At: "fence-grant",
		Find: `\w+ < \w+ or `,
		Put:  "", Test: "./redisbackend Fenced$",
	},
	{
		Name: "redis: no answer is a no", At: "redis-no-answer", Find: `Errorf\("(.*)", (.*)\)`,
		Put: `Errorf("$1: %w", $2, backend.ErrUnavailable)`, Test: "./redisbackend RequestTimeout",
	},
	{
		Name: "go-redis: a request without answer is sent again", At: "sent-once",
		Find: `return true`, Put: "return false",
		Test: "./redisbackend LostReplyToAcquire",
	},
}

// A majority: its votes, its tokens, who its nodes are.
var quorum = []mutant{
	{
		Name: "half of an even number is a majority", At: "majority", Find: `len\((\w+)\)/2 \+ 1`,
		Put:  "(len($1) + 1) / 2",
		Test: "./redlock MinorityIsGivenBack",
	},
	{
		Name: "a minority can renew", At: "majority-renews", Find: `case (__) >= __:`,
		Put: "case $1 > 0:", Test: "./redlock RenewByMajority",
	},
	{
		Name: "a node that confirmed an older token has stored the highest", At: "told-not-highest",
		Find: `(\(\w+), .*\)$`, Put: "$1, ^uint64(0))",
		Test: "./redlock ConfirmedTokenIs",
	},
	{
		Name: "a node that refused a renewal has lost the hold", At: "refused-is-not-lost",
		Find: `errors\.Is\((\w+), (.*)\):`,
		Put:  "errors.Is($1, $2), backend.AnswerOf($1) == backend.No:",
		Test: "./redlock OutlivesARefusedRenewal",
	},
	{
		Name: "a grant tells the longer lease that nodes are asked for", At: "drift-not-granted",
		Find: `TTL: (__\.__\.TTL)`, Put: "TTL: $1 + $1/10",
		Test: "./redlock DriftIsNotTheHolders",
	},
	{
		Name: "a node is not needed for a release beside one that may not hold",
		At:   "enough-that-hold", Find: `__ && `, Put: "",
		Test: "./redlock ReleaseNeedsABusyNodeBesideAnAttempt",
	},
	{
		Name: "a release that a quorum's node is told again was not made", At: "release-is-owed",
		Find: condition, Put: never,
		Test: "./redlock ReleaseThatIsOwedIsUnknown",
	},
	{
		Name: "who did not answer said no", At: "vote-unknown", Find: `backend\.No:`,
		Put:  "backend.No, backend.Unknown:",
		Test: "./redlock MajorityDown",
	},
	{
		Name: "a quorum's token is not written back", At: "token-written-back", Find: ` && .* \{`,
		Put:  " {",
		Test: "./redlock TokenIsWrittenBack",
	},
	{
		Name: "more tokens than one node has reserved", At: "quorum-reserved-tokens",
		Find: statement, Put: skipped,
		Test: "./redlock NoMoreTokensThanANode",
	},
	{
		Name: "a quorum's repeat is told a grant that is over", At: "quorum-repeat",
		Find: condition, Put: never,
		Test: "./redlock RepeatOfALostGrant",
	},
	{
		Name: "no tombstone on a node where an attempt is in flight", At: "quorum-tombstone",
		Find: ` && !__$`, Put: "",
		Test: "./redlock ReleaseWhereAnAttemptIsLate",
	},
	{
		Name: "given back, and asked again under the same name", At: "given-back", Find: statement,
		Put:  skipped,
		Test: "./redlock GivenBackWhereAnAttemptIsLate",
	},
	{
		Name: "a release overtakes its own acquire", At: "release-behind-acquire", Find: condition,
		Put:  never,
		Test: "./redlock ReleaseNeverOvertakes",
	},
	{
		Name: "one server twice is two", At: "one-server-once", Find: condition, Put: never,
		Test: "./redlock SameServer",
	},
	{
		Name: "a client's scheme is part of a node's name", At: "node-name",
		Find: `_, (\w+), _ = strings\.Cut\((__), "://"\)`, Put: "$1 = $2",
		Test: "./redlock List",
	},
	{
		Name: "who the nodes are is not waited for", At: "node-in-doubt", Find: condition,
		Put:  never,
		Test: "./redlock List",
	},
}

// etcd: what each write compares, and from when leases count.
var etcd = []mutant{
	{
		Name: "etcd: a free lock is not compared with the queue", At: "etcd-queue-empty",
		Find: `:= .*`, Put: ":= []clientv3.Cmp{}",
		Test: "./etcdbackend TestConformance$/one/exclusive/not-re-entrant",
	},
	{
		Name: "etcd: a queue that was read is not compared", At: "etcd-queue-unchanged",
		Find: `:= .*`, Put: ":= []clientv3.Cmp{}",
		Test: "./etcdbackend QueueChanges",
	},
	{
		Name: "etcd: a released claim may come again", At: "etcd-tombstone", Find: statement,
		Put: skipped, Test: "./etcdbackend ResentPut",
	},
	{
		Name: "etcd: a counter is not compared", At: "etcd-counter", Find: statement, Put: skipped,
		Test: "./etcdbackend CounterIsCompared",
	},
	{
		Name: "etcd: a lease is counted from the answer to its keepalive", At: "etcd-lease-began",
		Find: `= __, `, Put: "= time.Now(), ",
		Test: "./etcdbackend LeaseCounts",
	},
	{
		Name: "etcd: a renewal does not look at the entry", At: "etcd-entry-there",
		Find: `case (.*):\n(.*)backend\.ErrLost`,
		Put:  "case $1:\n${2}nil", Test: "./etcdbackend PeerDeletedKey",
	},
	{
		Name: "etcd: a release deletes whatever has the name", At: "etcd-same-entry",
		Find: statement, Put: skipped,
		Test: "./etcdbackend LateDeletion",
	},
	{
		Name: "etcd: one of two claims of a key is granted beside the other", At: "etcd-key-twice",
		Find: `__\[.*?\] \|\| `, Put: "",
		Test: "./etcdbackend TestConformance$/one/try-all/late",
	},
	{
		Name: "etcd: one of many is released without a look at who waits", At: "etcd-alone",
		Find: `:= .*`, Put: ":= []clientv3.Cmp(nil)",
		Test: "./etcdbackend TestConformance$/one/try-all/waited",
	},
	{
		Name: "etcd: a refused keepalive is a no to a claim that is there", At: "etcd-unkept",
		Find: `%v`, Put: "%w",
		Test: "./etcdbackend ClaimWhoseKeepaliveIsRefused",
	},
	{
		Name: "etcd: many that were sent twice are not there", At: "etcd-all-resent",
		Find: condition, Put: never,
		Test: "./etcdbackend ManyThatAreMadeAgain",
	},
	{
		Name: "etcd: many whose release was sent twice are lost", At: "etcd-all-resent-release",
		Find: `case (.*):`, Put: "case $1 && false:",
		Test: "./etcdbackend ManyThatAreMadeAgain",
	},
	{
		Name: "etcd: a hold has no shadow", At: "etcd-shadow", Find: statement, Put: skipped,
		Test: "./etcdbackend TestEarlyRevocation",
	},
	{
		Name: "etcd: what ended without a release is over, whoever led", At: "etcd-early-end",
		Find: ` && __ == __$`, Put: "",
		Test: "./etcdbackend TestSimulatedLeaderPauses$",
	},
	{
		Name: "etcd: a burial is shorter than the hold's lease", At: "etcd-burial",
		Find: `\((__)\+.*,`, Put: "($1*0+1,",
		Test: "./etcdbackend TestSimulatedLeaderPauses$",
	},
	{
		Name: "etcd: a hold stays on the lease of an earlier leader", At: "etcd-outdated",
		Find: `return .* \}`, Put: "return false }",
		Test: "./etcdbackend TestPausedLeaderEndsNoHold",
	},
	{
		Name: "etcd: watches stay on a stream whose token is over", At: "etcd-stream",
		Find: condition,
		Put:  never, Test: "./etcdbackend TestWatchAfterATokensEnd",
	},
	{
		Name: "etcd: a renewal waits long for each member", At: "etcd-hops", Find: `range 2`,
		Put: "range 0", Test: "./etcdbackend TestAskingHopsOn",
	},
	{
		Name: "etcd: a token that is not known yet is refused for good", At: "etcd-token",
		Find: `case __\(__\), (.*):`, Put: "case $1:", Test: "./etcdbackend TestTokenNeverKnown",
	},
	{
		Name: "etcd: who waits behind an orphan that waits does not look",
		At:   "etcd-heartbeat-orphan", Find: ` \|\| .*\{`, Put: " {",
		Test: "./etcdbackend TestHeartbeatFindsOrphans",
	},
	{
		Name: "etcd: a run that a claim waited for is not heeded", At: "etcd-awaited",
		Find: ` \|\| .* \{`, Put: " {",
		Test: "./etcdbackend TestConformance/one/early",
	},
	{
		Name: "etcd: a job is refused by the time of the run before", At: "etcd-own-time",
		Find: ` && .* \{`, Put: " {",
		Test: "./etcdbackend TestConformance/one/early",
	},
	{
		Name: "etcd: a mark of a version before is not heeded", At: "etcd-own-time",
		Find: condition,
		Put:  never, Test: "./etcdbackend RunAmongVersions",
	},
	{
		Name: "etcd: a late request hides a shadow", At: "etcd-unused", Find: `, __\(__\(__\)\)`,
		Put: "", Test: "./etcdbackend TestLatePutHidesNoShadow",
	},
}

// The contract, the reference store, files, the fence, and the judge without which nothing is seen.
var others = []mutant{
	{
		Name: "an unknown error is a no", At: "unknown", Find: `return Unknown`, Put: "return No",
		Test: "./backend Answer",
	},
	{
		Name: "record: anybody may release", At: "record-owner", Find: `return .* \}\)`,
		Put: "return true })", Test: "./backend/membackend TestConformance$/release",
	},
	{
		Name: "record: who goes with others stays in the queue", At: "record-leave",
		Find: `return .* \}\)`, Put: "return false })",
		Test: "./backend/membackend TestConformance$/release-all",
	},
	{
		Name: "record: nobody is woken when several leave the queue", At: "record-left",
		Find: ` \|\| (\S+) < (\w+)`, Put: " || $1 < 0*$2",
		Test: "./backend/membackend TestConformance$/release-all",
	},
	{
		Name: "record: a run that a claim waited for is not heeded", At: "record-awaited",
		Find: ` \|\| .* \{`, Put: " {",
		Test: "./backend/membackend TestConformance$/early",
	},
	{
		Name: "record: a job is refused by the time of the run before", At: "record-own-time",
		Find: statement, Put: skipped,
		Test: "./backend/membackend TestConformance$/early",
	},
	{
		Name: "record: a mark of a version before is not heeded", At: "record-other-version",
		Find: `if (\S+ != nil) .* \{`, Put: "if $1 {", Test: "./backend/record RunAmongVersions",
	},
	{
		Name: "record: a released claim takes the lock", At: "record-tombstone", Find: condition,
		Put:  never,
		Test: "./backend/membackend TestConformance$/tombstone",
	},
	{
		Name: "postgres: what is believed is not asked", At: "pg-guess", Find: `case (.*) && .*:`,
		Put: "case $1 && false:", Test: "./backend/pgbackend TestBeliefIsAsked",
	},
	{
		Name: "postgres: a sweep deletes a hold that a transaction keeps", At: "pg-sweep",
		Find: ` && __\(__\) == 0`, Put: "",
		Test: "./backend/pgbackend TestSweepOfAKeptHold",
	},
	{
		Name: "postgres: a transaction keeps no hold", At: "pg-intx", Find: statement, Put: skipped,
		Test: "./backend/pgbackend TestCommitInFlight",
	},
	{
		Name: "quorum: a hold is told of twice where nodes tell of it late", At: "observe-once",
		Find: condition, Put: never, Test: "./redlock TestObserveTellsOfAHoldOnce",
	},
	{
		Name: "postgres: who ends a hold beside another is refused", At: "pg-two-end",
		Find: ` && (__):`, Put: " && ($1 || true):",
		Test: "./backend/pgbackend TestAHoldThatIsEnding/Release",
	},
	{
		Name: "record: tokens go by the clock alone", At: "record-token",
		Find: `max\(__\+1, (.*)\), max`, Put: "$1, max",
		Test: "./backend/membackend TestConformance$/token",
	},
	{
		Name: "record: it is deleted before the clock has passed its token", At: "record-passed",
		Find: `return .* <`, Put: "return 0 <", Test: "./backend/record TestConformance$/token",
	},
	{
		Name: "record: clocks that are apart get no allowance", At: "record-skew",
		Find: `(\w+) \+ __\)`, Put: "$1)", Test: "./backend/record TestSkew",
	},
	{
		Name: "record: a newer form is read as this one", At: "record-version", Find: condition,
		Put: never, Test: "./backend/record TestForeign",
	},
	{
		Name: "record: what is damaged is read", At: "record-sum", Find: condition, Put: never,
		Test: "./backend/record TestForeign",
	},
	{
		Name: "record: a subscription without an answer keeps its caller", At: "record-subscribe",
		Find: `(case <-)[^:]*:`, Put: "${1}make(chan int):",
		Test: "./backend/record TestSubscriptionWithoutAnAnswer",
	},
	{
		Name: "a node that hangs while a quorum is opened is a ctx that ended", At: "node-hangs",
		Find: condition, Put: never,
		Test: "./redlock TestOpenWithNodesThatHang",
	},
	{
		Name: "mem: a store that forgot grants at once", At: "mem-quarantine", Find: condition,
		Put:  never,
		Test: "./backend/membackend Quarantine",
	},
	{
		Name: "file: the lock is not taken", At: "file-lock",
		Find: `\w+ = unix\.Flock\(.*\|(\w+)\)`, Put: "_ = $1",
		Test: "./backend/filebackend Stuck",
	},
	{
		Name: "file: renewals wait behind those who want the lock", At: "file-renewals-first",
		Find: condition, Put: always,
		Test: "./backend/filebackend RenewalsGoFirst",
	},
	{
		Name: "file: who cannot be looked at is dead", At: "file-dead",
		Find: `return (\w+) == nil && (\w+)`, Put: "return $1 != nil || $2",
		Test: "./backend/filebackend NotDead",
	},
	{
		Name: "file: another machine's holder has ended", At: "file-boot", Find: condition,
		Put: never, Test: "./backend/filebackend Reboot",
	},
	{
		Name: "file: tokens follow a calendar that was set back", At: "file-calendar",
		Find: condition, Put: never,
		Test: "./backend/filebackend CalendarSetBack",
	},
	{
		Name: "record: who wakes up late has the next not told of it", At: "record-lapsed",
		Find: statement, Put: skipped,
		Test: "./backend/membackend WhoDiedIsToldOf",
	},
	{
		Name: "a bar links to a hold that did not know of the wait", At: "link-knew",
		Find: `return __ && `, Put: "return ",
		Test: "./tracing BarsOfPods",
	},
	{
		Name: "file: a symbolic link is followed", At: "file-regular", Find: `unix\.O_NOFOLLOW\|`,
		Put:  "",
		Test: "./backend/filebackend NoRegularFile/record/a_link_to_a_record",
	},
	{
		Name: "run locks in the memory of each process", At: "between-processes", Find: condition,
		Put:  never,
		Test: "./cmd/holdfast MemoryLocks",
	},
	{
		Name: "run: nobody kills a command whose holdfast is killed", At: "run-deadman",
		Find: `syscall\.SIGKILL`, Put: "0", Test: "./cmd/holdfast Situations/KILL_to_it/file",
	},
	{
		Name: "run: a command outlives its lease where holdfast is stopped", At: "run-deadman-time",
		Find: statement, Put: skipped,
		Test: "./cmd/holdfast Situations/STOP_to_it/file",
	},
	{
		Name: "run: a holdfast that is stopped as it starts its command has no deadman",
		At:   "run-stopped-at-start", Find: statement, Put: skipped,
		Test: "./cmd/holdfast StoppedAtTheStart",
	},
	{
		Name: "leader: a command's own status is a lost lock", At: "leader-own-status",
		Find: condition, Put: never, Test: "./cmd/holdfast LeaderEndsAsItsCommand",
	},
	{
		Name: "run: a command has the outer run's variables, too", At: "run-env", Find: statement,
		Put: "_ = exec.Cmd{}", Test: "./cmd/holdfast RunSetsItsOwnVariables",
	},
	{
		Name: "run: the lock's file takes the place of one that a command inherits",
		At:   "run-inherits", Find: `(\w+)(, .*F_DUPFD, ).*\)`,
		Put: "$1${2}3); _ = unix.Dup3($1, 3, 0)", Test: "./cmd/holdfast CommandInheritsTheShells",
	},
	{
		Name: "run: the store takes a run for gone whose command goes on", At: "run-inherits",
		Find: `F_DUPFD`, Put: "F_DUPFD_CLOEXEC",
		Test: "./cmd/holdfast CommandInheritsTheShells",
	},
	{
		Name: "run: the span of a command that failed is no error", At: "run-span-failed",
		Find: statement, Put: "_ = codes.Error", Test: "./cmd/holdfast RunTrace",
	},
	{
		Name: "inspect: what is left of a lease is in milliseconds", At: "lease-in-seconds",
		Find: `(\w+\.\w+)\.\w+\(\),`, Put: "1000 * $1.Seconds(),",
		Test: "./cmd/holdfast Leader$",
	},
	{
		Name: "the deadlocks of a class do not begin at 0", At: "deadlocks-begin",
		Find: `\w+\.\w+,`, Put: "", Test: "./tracing CountersBeginAtZero",
	},
	{
		Name: "run: the deadman hears of a command at the first look, if then",
		At:   "run-first-promise", Find: statement, Put: skipped,
		Test: "./cmd/holdfast LostWhileTheCommandStarts",
	},
	{
		Name: "run: a job is not noted after an outage", At: "run-counts-later", Find: condition,
		Put: always, Test: "./cmd/holdfast RunOncePerCounts",
	},
	{
		Name: "run: a command that never began counts as a run", At: "run-uncounted",
		Find: `(__), __, (__)\)`, Put: "$1, $2)", Test: "./cmd/holdfast RunOnSuccess",
	},
	{
		Name: "run: a script goes on after Ctrl-C", At: "run-dies", Find: statement, Put: skipped,
		Test: "./cmd/holdfast Situations/Ctrl-C_in_a_script/file",
	},
	{
		Name: "run: a script goes on after a Ctrl-C that its command alone got", At: "run-group",
		Find: `: (\w+), (\w+): (\w+)\}`, Put: ": $1, $2: $3 && false}",
		Test: "./cmd/holdfast Situations/has_the_terminal/file",
	},
	{
		Name: "run: what is left of a command lives on at a loss", At: "run-rest", Find: condition,
		Put: never, Test: "./cmd/holdfast WhatIsLeft",
	},
	{
		Name: "run: the first process waits for what it has to reap itself", At: "run-reap",
		Find: `:= 1`, Put: ":= 0", Test: "./cmd/holdfast FirstProcessAtALoss",
	},
	{
		Name: "run: a stopped command cannot be told to end", At: "run-told-stopped",
		Find: statement,
		Put:  skipped, Test: "./cmd/holdfast StoppedCommandIsTold",
	},
	{
		Name: "run: a command that asks on the terminal is stopped", At: "run-lend",
		Find: condition,
		Put:  always, Test: "./cmd/holdfast Situations/asks_on_the_terminal/file",
	},
	{
		Name: "run: a pager that wants the terminal back is stopped", At: "run-take-back",
		Find: condition, Put: never, Test: "./cmd/holdfast Situations/asks_too/file",
	},
	{
		Name: "run: an ignored SIGQUIT ends the command", At: "run-ignored", Find: statement,
		Put: skipped, Test: "./cmd/holdfast Situations/in_a_script,_and/file",
	},
	{
		Name: "run: a command has no time to end if the loss is found by a look",
		At:   "run-lost-at-look", Find: condition, Put: never, Test: "./cmd/holdfast LookAtALock",
	},
	{
		Name: "run: a lock that is lost while it is looked at is one whose time is over",
		At:   "run-lost-within-look", Find: `true`, Put: "false",
		Test: "./cmd/holdfast LookAtALock",
	},
	{
		Name: "run: a command that stops has no time to end if its lock is lost",
		At:   "run-lost-at-pause", Find: `\|\| (\w+) \|\|`, Put: "|| ${1} && 1 > 2 ||",
		Test: "./cmd/holdfast LookAtALock",
	},
	{
		Name: "run: nobody hears that the deadman is gone", At: "run-alone", Find: condition,
		Put: never, Test: "./cmd/holdfast DeadmanIsGone",
	},
	{
		Name: "list: a table is wider than the window", At: "list-fits", Find: `\.\w+\(\w+\(\)\)`,
		Put: "", Test: "./cmd/holdfast TablesFit",
	},
	{
		Name: "doctor: what is too wide for the window is left out", At: "doctor-folds",
		Find: `(\w+: )true`, Put: "${1}false", Test: "./cmd/holdfast TablesFit",
	},
	{
		Name: "top: a note is whole or not there", At: "optional-narrower",
		Find: `return (__) == (\w+) && .* \}`, Put: "return $1 == $2 }",
		Test: "./cmd/holdfast Table$",
	},
	{
		Name: "top: an open lock has no note", At: "holders-note", Find: condition, Put: never,
		Test: "./cmd/holdfast ScreenColumns",
	},
	{
		Name: "top: a waiter has no note", At: "waiters-note", Find: condition, Put: never,
		Test: "./cmd/holdfast ScreenColumns",
	},
	{
		Name: "inspect: a holder has no note", At: "inspect-note", Find: condition, Put: never,
		Test: "./cmd/holdfast RunNote",
	},
	{
		Name: "run: who holds is said behind the note", At: "note-last",
		Find: `return (\w+)\((\w+)\+(\w+), (\w+)\)`, Put: "return $1($2, $4) + ` for 5s` + $3",
		Test: "./cmd/holdfast RunNote",
	},
	{
		Name: "terminal: a wide character has one column", At: "wide-character", Find: "2",
		Put:  "1",
		Test: "./cmd/internal/terminal Width",
	},
	{
		Name: "terminal: an accent has a column", At: "combining-character", Find: "0", Put: "1",
		Test: "./cmd/internal/terminal Width",
	},
	{
		Name: "run: nobody hears that --backend is the command's", At: "flag-behind-command",
		Find: condition, Put: never, Test: "./cmd/holdfast NoStoreIsNamed",
	},
	{
		Name: "run: an empty --backend is none", At: "empty-flag", Find: condition, Put: never,
		Test: "./cmd/holdfast Refus",
	},
	{
		Name: "wait: a request that ends with the wait is a store that gives no answer",
		At:   "wait-over", Find: `:= (.*); \{`, Put: ":= $1 && (1 > 2); {",
		Test: "./cmd/holdfast WaitEndsInTime",
	},
	{
		Name: "top: ends when a store gives no answer", At: "top-goes-on",
		Find: `case (!\w+), (.*):`,
		Put:  "case true || $1, $2:", Test: "./cmd/holdfast LiveEnds",
	},
	{
		Name: "top: another lock is open when the one that was is gone", At: "opened-gone",
		Find: condition, Put: never, Test: "./cmd/holdfast ScreenGoesOn",
	},
	{
		Name: "redis: who asks one node of a cluster asks again", At: "moved-is-a-refusal",
		Find: condition, Put: never, Test: "./cmd/holdfast DoctorFindsACluster",
	},
	{
		Name: "holdfast: a node of a cluster cannot do what is needed", At: "node-of-a-cluster",
		Find: condition, Put: never, Test: "./cmd/holdfast StoreError",
	},
	{
		Name: "doctor: a TTL that is too short is ok", At: "doctor-ttl", Find: condition,
		Put:  never,
		Test: "./cmd/holdfast FindingWithTTL",
	},
	{
		Name: "doctor: folders of one machine are independent", At: "folders-are-one-machine",
		Find: condition, Put: never, Test: "./cmd/holdfast DoctorFinds/folders",
	},
	{
		Name: "doctor: the doctor is to be asked", At: "doctor-names-doctor", Find: `, (\w+)\)`,
		Put: `, "")`, Test: "./cmd/holdfast DoctorFinds/a_primary",
	},
	{
		Name: "holdfast: an hour is 1h0m0s", At: "round-durations", Find: `\{"m0s", "h0m"\}`,
		Put: "{}", Test: "./cmd/holdfast Ago",
	},
	{
		Name: "help: what there is not is well", At: "help-of-nothing", Find: condition, Put: never,
		Test: "./cmd/holdfast Refus",
	},
	{
		Name: "holdfast: too many arguments are no mistake", At: "too-many-arguments",
		Find: condition,
		Put:  never, Test: "./cmd/holdfast Refus",
	},
	{
		Name: "run: a --ttl below the store's least is another's", At: "ttl-from", Find: condition,
		Put: never, Test: "./cmd/holdfast Ticket",
	},
	{
		Name: "top: Ctrl-Z is no key", At: "top-stops", Find: condition, Put: never,
		Test: "./cmd/holdfast TopStops",
	},
	{
		Name: "top: an open lock does not scroll", At: "open-scrolls", Find: condition, Put: never,
		Test: "./cmd/holdfast ScreenScrolls",
	},
	{
		Name: "top: at the end of the last lock its lines begin anew", At: "open-stays",
		Find: condition, Put: always, Test: "./cmd/holdfast ScreenScrolls",
	},
	{
		Name: "top: who shares waits for those who share", At: "waits-for-a-writer",
		Find: condition,
		Put:  never, Test: "./cmd/holdfast InFrontOf",
	},
	{
		Name: "top: not all are shown, and nobody says so", At: "top-rows", Find: condition,
		Put: never, Test: "./cmd/holdfast Summary",
	},
	{
		Name: "inspect: a pipe is told of the first waiters", At: "inspect-whole",
		Find: ` && .* \{`,
		Put:  " {", Test: "./cmd/holdfast InspectTellsOfAll",
	},
	{
		Name: "config: a line break in a URL is not named", At: "url-line-break", Find: condition,
		Put: never, Test: "./locker/config BadFile|BadEnvironment",
	},
	{
		Name: "config: a parameter that is not known is from any variable", At: "suspect-parameter",
		Find: statement, Put: skipped, Test: "./locker/config OpenFails",
	},
	{
		Name: "config: a line break is in any variable of a URL", At: "suspect-variables",
		Find: condition, Put: never, Test: "./locker/config BadFile",
	},
	{
		Name: "run: nobody hears that the lock is not confirmed", At: "run-unconfirmed",
		Find: condition, Put: never, Test: "./cmd/holdfast RunSaysWhy",
	},
	{
		Name: "leader: a hold has the trouble of the one before", At: "run-anew", Find: statement,
		Put: skipped, Test: "./cmd/holdfast LeaderSaysIt",
	},
	{
		Name: "a store that is up is told about TLS", At: "store-up",
		Find: `(case .*\n.*)\n(.*\n.*\n.*\n.*)`, Put: "$2\n$1", Test: "./cmd/holdfast StoreError",
	},
	{
		Name: "a store that is up counts as out of reach", At: "store-up", Find: condition,
		Put:  never,
		Test: "./cmd/holdfast WhatIsWrong",
	},
	{
		Name: "run: waits for the run that it is in", At: "run-nested",
		Find: `\(\w+ \|\| (.*)\) \{`,
		Put:  "$1 {", Test: "./cmd/holdfast RunInRun",
	},
	{
		Name: "ticket: a store ends the hold with the process", At: "ticket-process",
		Find: condition,
		Put:  never, Test: "./cmd/holdfast TicketRefusals",
	},
	{
		Name: "ticket: a store cannot tell the hold from others", At: "ticket-store",
		Find: condition,
		Put:  never, Test: "./cmd/holdfast TicketRefusals",
	},
	{
		Name: "ticket: nobody has it, and the lock is held", At: "ticket-unprinted",
		Find: condition,
		Put:  never, Test: "./cmd/holdfast TicketThatIsNotPrinted",
	},
	{
		Name: "ticket: Ctrl-C ends the release of what nobody has", At: "ticket-unprinted-anyway",
		Find: `WithoutCancel`, Put: "Context",
		Test: "./cmd/holdfast TicketThatIsNotPrintedAtCtrlC",
	},
	{
		Name: "ticket: a broken pipe leaves the lock held", At: "ticket-pipe", Find: statement,
		Put: skipped, Test: "./cmd/holdfast TicketThatIsNotPrinted",
	},
	{
		Name: "ticket: a renewal of what has ended is a yes", At: "ticket-renew", Find: condition,
		Put: never, Test: "./cmd/holdfast TicketRunsOut",
	},
	{
		Name: "ticket: what is left is as of the reply", At: "ticket-left",
		Find: `-(time\.Since\(\w+\))`, Put: "+0*$1", Test: "./cmd/holdfast TicketAnsweredLate",
	},
	{
		Name: "ticket: it holds what another holds", At: "ticket-check", Find: condition,
		Put:  always,
		Test: "./cmd/holdfast TicketRunsOut",
	},
	{
		Name: "a deadlock is told without a second look at it", At: "deadlock-again",
		Find: condition, Put: never,
		Test: "./locker NoDeadlockIfOneLetsGo",
	},
	{
		Name: "all who wait for each other give up", At: "greatest-token",
		Find: ` != (\w+)\[0\] \{`, Put: " != $1[0] && false {",
		Test: "./locker DeadlockAcross|DeadlockInAProcess",
	},
	{
		Name: "a deadlock that is over is broken", At: "deadlock-stuck", Find: ` && __\(\)`,
		Put:  "",
		Test: "./locker ThatIsOverIsNotBroken",
	},
	{
		Name: "a record that the store did not answer is not tried again",
		At:   "deadlock-unanswered", Find: condition, Put: always,
		Test: "./locker DeadlockAfterASilence",
	},
	{
		Name: "a lease that a record names is handed on", At: "named-lease", Find: ` \|\| __ \{`,
		Put:  " {",
		Test: "./locker OfALeaseIsNotHandedOn",
	},
	{
		Name: "what a wait told the store of a deadlock stays there", At: "deadlock-record",
		Find: statement, Put: skipped,
		Test: "./locker DeadlockIsLookedFor",
	},
	{
		Name: "fence: an older token is admitted", At: "fence", Find: condition, Put: never,
		Test: "./locker/fence Gate",
	},
	{
		Name: "judge: two holders that a second run did not see are forgiven", At: "broken-stands",
		Find: ` \|\| (.*) \{`, Put: " || $1 && 1 > 2 {", Test: "./internal/repo/skips Verdict",
	},
	{
		Name: "stress: a test that fails once of thirty is fit", At: "flaky-once",
		Find: `case (.*):`,
		Put:  "case $1 && 1 > 2:", Test: "./internal/repo/stress Stress",
	},
	{
		Name: "judge: two holders are not seen", At: "judge-overlap", Find: `> (\w+):`,
		Put: "> $1+1:", Test: "./internal/history Check",
	},
	{
		Name: "judge: falling tokens are not seen", At: "judge-tokens", Find: condition, Put: never,
		Test: "./internal/history Check",
	},
}
