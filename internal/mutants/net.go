package main

// What no test noticed once: these were put in by hand, and survived.
var net = []mutant{
	{
		Name: "a late yes revives", At: "late-yes", Find: `case (\w+), .*:`, Put: "case $1:",
		Test: "./locker LateYesAfterSuspend",
	},
	{
		Name: "the deadline of a lease waits for its renewal", At: "timer-before-renewal",
		Find: `(.*)\n(.*)\n(\s*if (\w+) \{)$`, Put: "if !$4 { $1 }\n$2\n$3",
		Test: "./locker DeadlinesOfThoseWhoWait",
	},
	{
		Name: "a grant that nobody wants is kept", At: "unwanted-grant", Find: statement,
		Put:  skipped,
		Test: "./locker GrantThatNobodyWants",
	},
	{
		Name: "a turn that comes before the cancellation is a hold", At: "late-turn",
		Find: condition,
		Put:  never, Test: "./locker TurnThatComesFirst",
	},
	{
		Name: "what is granted when Close begins goes on", At: "granted-at-close", Find: condition,
		Put: never, Test: "./locker GrantedWhenCloseBegins",
	},
	{
		Name: "the key of a hold that was lost stays locked", At: "lost-hold-released",
		Find: statement, Put: skipped, Test: "./locker UnlockOfALostHold",
	},
	{
		Name: "an Unlock forgets that a renewal found no hold", At: "refuted-unlock",
		Find: condition,
		Put:  never, Test: "./locker RenewalHasRefuted",
	},
	{
		Name: "a wait that is over keeps the guard under which it was", At: "waiter-ctx",
		Find: statement, Put: "", Test: "./locker UnderWhichSomebodyWaited",
	},
	{
		Name: "a shard that is away keeps others' releases", At: "shard-away", Find: condition,
		Put: never, Test: "./locker ShardThatIsAway",
	},
	{
		Name: "who gives up waits for as long as others are answered", At: "patience-bound",
		Find: statement, Put: skipped, Test: "./locker GivingUpBeside",
	},
	{
		Name: "a cohort keeps a lease that was lost before it was given", At: "lost-before-given",
		Find: statement, Put: "", Test: "./locker LostBeforeItIsGiven",
	},
	{
		Name: "owed releases of a burst have no bound", At: "owed-bound", Find: condition,
		Put:  never,
		Test: "./locker OwedReleasesOfABurst",
	},
	{
		Name: "etcd: a proof counts from a heartbeat that was answered meanwhile",
		At:   "etcd-proof-deadline", Find: condition, Put: never,
		Test: "./etcdbackend ProofBesideAnAnsweredHeartbeat",
	},
	{
		Name: "etcd: a grant is believed for the length of a lease that has run for a while",
		At:   "etcd-lease-left", Find: `(__\(__\.__\))\)`, Put: "$1+5*time.Second)",
		Test: "./etcdbackend SharedLease",
	},
	{
		Name: "etcd: what was not saved is removed before it is made again",
		At:   "etcd-unsaved-stays",
		Find: `case (.*):`, Put: "default:", Test: "./etcdbackend NeverArrived",
	},
	{
		Name: "etcd: a transaction is made again that a proxy gave up", At: "etcd-sent-once",
		Find: condition, Put: never, Test: "./etcdbackend HastyProxy",
	},
	{
		Name: "etcd: two limits are in one queue", At: "etcd-one-limit", Find: statement,
		Put:  skipped,
		Test: "./etcdbackend LimitsThatRace",
	},
	{
		Name: "etcd: a release that was made again is said to be lost", At: "etcd-release-resent",
		Find: condition, Put: never,
		Test: "./etcdbackend ReleaseThatIsMadeAgain",
	},
	{
		Name: "file: a mark stands for as long as the calendar was set back", At: "file-mark",
		Find: statement, Put: skipped, Test: "./backend/filebackend MarkAfter",
	},
	{
		Name: "file: what lasts is not on the disk", At: "file-fsync", Find: condition, Put: never,
		Test: "./backend/filebackend Fsync",
	},
	{
		Name: "file: the name of what lasts is not on the disk", At: "file-fsync-folder",
		Find: `return .*$`, Put: "return nil", Test: "./backend/filebackend Fsync",
	},
	{
		Name: "file: a boot clock of its own is taken", At: "file-time-namespace", Find: condition,
		Put: never, Test: "./backend/filebackend TimeNamespaces",
	},
	{
		Name: "redis: a state is saved that no replica has", At: "replicas-save", Find: condition,
		Put: never, Test: "./internal/redis ReplicasAreNeeded",
	},
	{
		Name: "redis: a hold is renewed that no replica has", At: "replicas-renewal",
		Find: condition,
		Put:  never, Test: "./internal/redis ReplicasAreNeeded",
	},
	{
		Name: "dialect: a replica says that a hold was lost", At: "dialect-primary-renew",
		Find: statement, Put: "",
		Test: "./internal/redis/script AReplicaSaysNothing",
	},
	{
		Name: "dialect: a replica says that there was nothing to release",
		At:   "dialect-primary-release", Find: ` else .* end`, Put: " end",
		Test: "./internal/redis/script AReplicaSaysNothing",
	},
	{
		Name: "a quorum asks a node that can do less than was promised", At: "lesser-node",
		Find: condition, Put: never, Test: "./redlock LesserNode",
	},
	{
		Name: "a quorum bars a node that comes late and needs longer leases",
		At:   "long-leases-late", Find: `(\w+)\.MinToken, .* = (.*), 0`, Put: "$1.MinToken = $2",
		Test: "./redlock LongLeasesComesLate",
	},
	{
		Name: "a quorum forgets the names of a claim that asks seldom", At: "names-remembered",
		Find: `(MaxTTL\))\+\w+`, Put: "$1+time.Second",
		Test: "./redlock AskedForMuchLater",
	},
	{
		Name: "a quorum never asks again who a node is that was another's server",
		At:   "barred-asked-again", Find: ` (\w+) != nil\)`, Put: " $1 != $1)",
		Test: "./redlock SameServerUntilLater",
	},
	{
		Name: "a quorum waits for the name of a node that does not tell it", At: "nameless-node",
		Find: `backend\.Refused\((\w+)\)`,
		Put:  "errors.Is($1, errors.ErrUnsupported)", Test: "./redlock NamelessNode",
	},
	{
		Name: "a quorum waits for a release by a node that must not be asked",
		At:   "barred-unhealthy",
		Find: condition, Put: never, Test: "./redlock ReleaseBesideABarredNode",
	},
	{
		Name: "a job is said to be noted that is not", At: "late-mark",
		Find: ` && (\w+)\.NotBefore == 0`, Put: "",
		Test: "./locker OnceNotedTooLate",
	},
	{
		Name: "record: a release tells of nobody", At: "record-waited", Find: statement,
		Put:  skipped,
		Test: "./backend/membackend TestConformance$/release",
	},
	{
		Name: "lua: a hand-over tells of those whom it leaves waiting", At: "redis-waited",
		Find: `\{(__), (__), (__)\}`, Put: "{$1, $2 - 1, $3}",
		Test: "./internal/redis/script TellsWhoWaited",
	},
	{
		Name: "rueidis: what a server says unasked is read", At: "unasked", Find: statement,
		Put: skipped, Test: "./rueidisbackend SpeaksFirst",
	},
	{
		Name: "record: who died is told of for ever", At: "record-took-over", Find: statement,
		Put: skipped, Test: "./backend/membackend TestConformance$/took-over",
	},
	{
		Name: "lua: nobody is told of who died", At: "redis-took-over", Find: `if (.*) then`,
		Put:  "if false then",
		Test: "./redisbackend TestConformance/plain/took-over",
	},
	{
		Name: "each hold of a lease has taken over", At: "took-over-first", Find: statement,
		Put: skipped, Test: "./locker TestTookOver",
	},
	{
		Name: "who was named is said to have died", At: "took-over-named", Find: `if (.*) && .* \{`,
		Put:  "if $1 {",
		Test: "./tracing TakenOverFromAnother",
	},
	{
		Name: "etcd: a release tells of those who are in the queue behind it", At: "etcd-waited",
		Find: `max\((.*), (.*)\)`, Put: "$1 + max(0, $2)",
		Test: "./etcdbackend TestConformance/one/release",
	},
	{
		Name: "file: what the disk does not say is a no", At: "file-fsync-folder",
		Find: `return (.*)$`,
		Put: "if err := $1; err != nil { return errors.Join(backend.ErrNotServing, err) " +
			"}; return nil", Test: "./backend/filebackend FsyncFails",
	},
	{
		Name: "file: who gave up keeps a shard", At: "file-given-up", Find: condition, Put: never,
		Test: "./backend/filebackend GivenUp",
	},
	{
		Name: "mem: keys go on above the last one that was forgotten", At: "mem-floor",
		Find: `max\(__, (__)\)`, Put: "$1",
		Test: "./backend/membackend ForgottenKeys",
	},
	{
		Name: "record: a job's run gets no allowance for clocks that are apart",
		At:   "record-own-time", Find: `(\w+) \+ __\)`, Put: "$1)",
		Test: "./backend/record TestSkew",
	},
	{
		Name: "lua: a fenced program that failed has not been", At: "fence-mark-stays",
		Find: `local (\w+) = .*$`,
		Put:  "$0 if type($1) == 'table' and $1.err then redis.call('DEL', KEYS[2]) end",
		Test: "./internal/redis/script FencedErrorIsRemembered",
	},
	{
		Name: "lua: a hand-over forgets what may be in flight", At: "guard-hand-over",
		Find: ` and \w+( and not \w+ and not)`, Put: "$1",
		Test: "./internal/redis/script HandOverRemembers",
	},
	{
		Name: "lua: of many keys one is released with any margin", At: "try-all-owner",
		Find: `string\.find\((\w+), .* \.\. (\w+) \.\. ' ', (\w+) \+ 1, true\) == \w+ \+ 1`,
		Put:  `string.match(string.sub($1, $3 + 1), '^ %d+ ([^ ]+) ') == $2`,
		Test: "./internal/redis/script ReleaseAllKeepsACounter",
	},
	{
		Name: "dialect: what is beside a renewed lock ends", At: "dialect-kept", Find: `.*`,
		Put:  "",
		Test: "./internal/redis/script RenewalKeepsAll",
	},
	{
		Name: "lua: who is let in while the dead are dropped is not looked at",
		At:   "admitted-unseen", Find: luaCondition, Put: luaNever,
		Test: "./internal/redis/script ShorterLeaseDuring",
	},
	{
		Name: "redis: a place that is kept is granted for longer than a TTL", At: "kept-place",
		Find: `\(min\((__), __\)\)`, Put: "($1)",
		Test: "./redisbackend TestConformance/plain/handoff",
	},
	{
		Name: "redis: who goes with others leaves no mark", At: "releaseall-leaves",
		Find: ` && \w+\.NotBefore == 0`, Put: "",
		Test: "./redisbackend TestConformance/plain/release-all",
	},
	{
		Name: "redis: leases are longer than a quarantine", At: "max-ttl", Find: condition,
		Put:  never,
		Test: "./redisbackend Unguarded",
	},
	{
		Name: "record: a swap that was not answered is made again", At: "record-unanswered",
		Find: `!errors\.Is\((\w+), \w+\)`,
		Put:  "backend.AnswerOf($1) != backend.Unknown", Test: "./backend/record TestLostAnswer",
	},
	{
		Name: "file: what was forgotten is not on the disk", At: "file-forgotten", Find: `, \w+\)`,
		Put:  ", false)",
		Test: "./backend/filebackend ForgottenIsOnTheDiskFirst",
	},
	{
		Name: "etcd: a lease is of a later term than it was asked for in", At: "etcd-lease-term",
		Find: `(\w+): (__)\(\)`, Put: "$1: $2() + 99",
		Test: "./etcdbackend LeaseThatIsHeardOfLate",
	},
	{
		Name: "etcd: many are released without what may be made again", At: "etcd-all-pending",
		Find: ` \|\| __ \|\| slices`, Put: " || slices",
		Test: "./etcdbackend ManyWhoseFirstCopy",
	},
	{
		Name: "etcd: one is released without what may be made again", At: "etcd-release-pending",
		Find: ` \|\| __`, Put: "",
		Test: "./etcdbackend ManyWhoseFirstCopy",
	},
	{
		Name: "etcd: who is unavailable has not made it", At: "etcd-token",
		Find: `(case \w+\((\w+)\), .*):`,
		Put:  "$1, status.Code($2) == codes.Unavailable:",
		Test: "./etcdbackend UnavailableIsNoRefusal",
	},
	{
		Name: "etcd: what is left of a hold is behind those who waited with it",
		At:   "etcd-shadow-place", Find: statement, Put: skipped,
		Test: "./etcdbackend EarlyEndOfWhoWaited",
	},
	{
		Name: "etcd: what is being removed is revived", At: "etcd-not-revived", Find: ` \|\| __ \{`,
		Put: " {", Test: "./etcdbackend BackBeforeTheLook",
	},
	{
		Name: "etcd: a write that was not made confirms", At: "etcd-written-confirms",
		Find: ` && __ \{`, Put: " {",
		Test: "./etcdbackend ProofBetweenReadAndWrite",
	},
	{
		Name: "etcd: who was granted meanwhile is said to wait", At: "etcd-granted-meanwhile",
		Find: condition, Put: never,
		Test: "./etcdbackend GrantedBeforeTheKeepalive",
	},
	{
		Name: "etcd: what was sent twice is not in flight", At: "etcd-resent-pending",
		Find: `, \w+ \|\| `, Put: ", ",
		Test: "./etcdbackend ManyWhoseFirstCopy",
	},
	{
		Name: "etcd: a write over an entry goes by its creation alone", At: "etcd-unwritten-since",
		Find: `\{(__\(__\)), .*\},`, Put: "{$1},",
		Test: "./etcdbackend LateSave",
	},
	{
		Name: "etcd: a renewal goes on with whatever has the name", At: "etcd-renewed-same",
		Find: ` \|\| .* \{`, Put: " {",
		Test: "./etcdbackend NameThatIsUsedAgain",
	},
	{
		Name: "etcd: a proof is of any hold with a lower token", At: "etcd-proof-own",
		Find: `\(max\(.*\)\)`, Put: "(1 << 10)",
		Test: "./etcdbackend ProofIsOfItsOwnHold",
	},
	{
		Name: "native: a clock is of the connection when it is told", At: "native-clock-before",
		Find: `:= (__)\(\)`, Put: ":= $1() + 1",
		Test: "./internal/redis NativeClockOfAReply",
	},
	{
		Name: "doctor: of several readings of a clock the slowest counts", At: "clock-quickest",
		Find: `(\w+\.Sub\(\w+\)) < `, Put: "$1 > ",
		Test: "./internal/redis ClockRate",
	},
	{
		Name: "a grant that came late was answered", At: "late-grant-unsure", Find: `= true`,
		Put: "= false", Test: "./locker GrantThatComesTooLateIsPutBack",
	},
	{
		Name: "a job has run while it was waited for", At: "ran-from-grant", Find: `time\.Now\(\)`,
		Put:  "time.Now().Add(-time.Hour)",
		Test: "./locker OnceDoesNotCountTheWait",
	},
	{
		Name: "All takes no answer for a no", At: "all-unanswered", Find: `, \w+\)`,
		Put:  ", backend.ErrUnavailable)",
		Test: "./locker AllEndsWithoutAnAnswer",
	},
	{
		Name: "who has waited for one resource opens beside another", At: "scoped-looks-again",
		Find: `case .*:`, Put: "$0\nreturn nil",
		Test: "./locker ScopedNextWaitsForAll",
	},
	{
		Name: "holdfast release leaves no tombstone", At: "ticket-in-flight", Find: `: true,`,
		Put:  ": true, NoneInFlight: true,",
		Test: "./cmd/holdfast FirstAttemptLands",
	},
	{
		Name: "a command that was killed for us has run to its end", At: "run-cut-off-meanwhile",
		Find: condition, Put: never,
		Test: "./cmd/holdfast TheDeadmanKilledIsNoRun",
	},
	{
		Name: "a Lock returns before its claim is withdrawn", At: "acquirer-ends-withdrawn",
		Find: `(__\(\w+\))`, Put: "go $1",
		Test: "./locker LockReturnsWhenItsClaim",
	},
	{
		Name: "a Check that the end of its hold overtook is good", At: "check-overtaken",
		Find: condition, Put: never, Test: "./locker CheckThatTheEnd",
	},
	{
		Name: "a Lock that is failed returns before its claim is withdrawn", At: "failed-withdrawn",
		Find: `, \w+: __\}`, Put: "}",
		Test: "./locker LockThatIsFailed",
	},
	{
		Name: "a reader opens beside what others have open", At: "scoped-modes",
		Find: `case __ != __, `, Put: "case ",
		Test: "./locker ScopedNextWaitsForAll",
	},
	{
		Name: "file: who died is forgotten within a lease", At: "file-sweep",
		Find: `-backend\.MaxTTL`,
		Put:  "-0*backend.MaxTTL", Test: "./backend/filebackend TestSweep",
	},
	{
		Name: "file: what is released together is not on the disk", At: "file-release-all",
		Find: `, __, false`, Put: ", false, false",
		Test: "./backend/filebackend Fsync",
	},
	{
		Name: "record: a run does not outlive a boot", At: "record-lasting", Find: `, Ran: __,`,
		Put: ",", Test: "./backend/record RunAmongVersions",
	},
	{
		Name: "redis: a replica hears of nothing late", At: "guard-lag", Find: ` \+ \w+$`, Put: "",
		Test: "./internal/redis GraceHasTheLag",
	},
	{
		Name: "redis: a tombstone is as long as a lease", At: "tombstone-in-flight", Find: `, __\)`,
		Put: ", 0)", Test: "./internal/redis TombstonesOutlast",
	},
	{
		Name: "redis: many keys are taken of any server", At: "try-all-checked", Find: condition,
		Put: never, Test: "./internal/redis ManyKeysOfAnUnfit",
	},
	{
		Name: "an Unlock after Close is made once", At: "release-after-close", Find: condition,
		Put: never, Test: "./locker UnlockAfterClose",
	},
	{
		Name: "fence: a request keeps the token that it came with", At: "fence-own-token",
		Find: `\.Set\(`, Put: ".Add(", Test: "./locker/fence OneTokenForEach",
	},
	{
		Name: "fence: the first of several tokens counts", At: "fence-one-token",
		Find: `strings\.Join\((.*)Values\((.*)\), .*\)`, Put: "strings.TrimSpace(${1}Get($2))",
		Test: "./locker/fence OneTokenForEach",
	},
	{
		Name: "etcd: who renews another's hold forgets how many tokens it has",
		At:   "etcd-reserve-kept", Find: statement, Put: skipped,
		Test: "./etcdbackend OfAnAdoptedHold",
	},
	{
		Name: "etcd: tokens that another has reserved are not counted", At: "etcd-reserve-raised",
		Find: `, __, 1\)`, Put: ", 1)",
		Test: "./etcdbackend OfAnAdoptedHold",
	},
	{
		Name: "postgres: what a server that goes says is a no", At: "pg-fatal", Find: ` && .*:`,
		Put: ":", Test: "./backend/pgbackend FatalAfterTheCommit",
	},
	{
		Name: "postgres: a guess that is wrong changes a row", At: "pg-timely-update",
		Find: ` AND timely`, Put: "",
		Test: "./backend/pgbackend WrongGuess",
	},
	{
		Name: "postgres: a row is deleted under a transaction", At: "pg-kept-delete",
		Find: ` AND free`, Put: "",
		Test: "./backend/pgbackend DeleteInFlight",
	},
	{
		Name: "a node that serves nothing has nothing of the claim", At: "not-served-is-held",
		Find: `case errors\.Is\((\w+), .*:`, Put: "case $1 != nil:",
		Test: "./redlock ServesNothingNow",
	},
	{
		Name: "an Update whose hold lasted too long saves, and says no", At: "update-max-hold",
		Find: `(\w+) == nil \{`, Put: "!errors.Is($1, ErrLost) {",
		Test: "./locker SavesNothingWithoutTheLock",
	},
	{
		Name: "redis: who comes behind a lone request is not sent", At: "lone-request-calls",
		Find: statement, Put: skipped, Test: "./redisbackend NextAfterALone",
	},
	{
		Name: "redis: replicas are counted before the grant", At: "replicas-of-the-grant",
		Find: `, (\w+), (\w+) =`, Put: ", _, $2 =",
		Test: "./redisbackend ReplicasAreCounted",
	},
	{
		Name: "redis: a watch is no watcher when it looks for its channel",
		At:   "watcher-enters-first", Find: twoLines, Put: swapped,
		Test: "./internal/redis WatchEnters",
	},
	{
		Name: "etcd: who enters again does not compare that its owner holds",
		At:   "etcd-reenter-holder", Find: `append\((.*), __\(\w+\)\)`, Put: "$1",
		Test: "./etcdbackend QueueChangesBeforeTheWrite",
	},
	{
		Name: "etcd: who enters again from the queue does not compare that its owner holds",
		At:   "etcd-reenter-queued",
		Find: `append\((\w+\.\w+), (__\(\w+\))\), `, Put: "append(${1}[:len($1)-1], $2), ",
		Test: "./etcdbackend QueueChangesBeforeTheWrite",
	},
	{
		Name: "redis: what the server says of WAIT is a no", At: "redis-unconfirmed",
		Find: `__\.__\((\w+)\)`, Put: "$1",
		Test: "./redisbackend TestNoWait",
	},
	{
		Name: "rueidis: what the server says of WAIT is a no", At: "rueidis-unconfirmed",
		Find: condition, Put: never, Test: "./rueidisbackend TestNoWait",
	},
	{
		Name: "postgres: a transaction keeps a hold that was seen before it had the lock",
		At:   "pg-intx-again", Find: statement, Put: skipped,
		Test: "./backend/pgbackend TestAHoldThatIsEnding/InTx",
	},
	{
		Name: "mem: a client that is closed twice counts twice", At: "mem-closed-once",
		Find: `if (.*)\.CompareAndSwap\(false, true\) &&`,
		Put:  "if ($1.Swap(true) || true) &&", Test: "./backend/membackend ClosedTwice",
	},
	{
		Name: "record: of the queue the first alone has a limit", At: "record-queued-limit",
		Find: `range (.*) \{`, Put: "range $1[:min(1, len($1))] {",
		Test: "./backend/membackend TestConformance$/permit",
	},
	{
		Name: "a loss behind Close is not told", At: "lost-behind-close", Find: `, ErrMaxHold\)`,
		Put: ", ErrClosed)", Test: "./locker LostBehindClose",
	},
	{
		Name: "what a node was owed is forgotten when the release fails again", At: "owed-again",
		Find: statement, Put: skipped, Test: "./redlock TestReleaseIsOwed",
	},
	{
		Name: "who comes behind Close waits", At: "joins-behind-close", Find: condition, Put: never,
		Test: "./locker LockThatBeganBeforeClose",
	},
	{
		Name: "a lease that a Check has renewed meanwhile is renewed no more",
		At:   "turn-after-check", Find: statement, Put: skipped,
		Test: "./locker RenewalWhoseTurnComesAfterACheck",
	},
	{
		Name: "file: of the keys of a shard the first that is forgotten is noted",
		At:   "file-forgotten-again", Find: `UnixMicro\((.*)\)`, Put: "Unix(0, $1)",
		Test: "./backend/filebackend NoteIsAboveEvery",
	},
	{
		Name: "postgres: a row goes whose token others' clocks have not passed",
		At:   "pg-sweep-skew", Find: `\.Add\(-__\)`, Put: "",
		Test: "./backend/pgbackend SweepLeavesAToken",
	},
	{
		Name: "etcd: who has a claim no more deletes it where another has it",
		At:   "etcd-ended-own-lease", Find: ` && [^&]* \{`, Put: " {",
		Test: "./etcdbackend EndedHereAndHeldElsewhere",
	},
	{
		Name: "etcd: a write that is answered answers the one before", At: "etcd-pending-stays",
		Find: `= __\.__ \|\| `, Put: "= ",
		Test: "./etcdbackend FirstCopyComesAfter",
	},
	{
		Name: "rueidis: a look that found no server has seen the key", At: "rueidis-looked-in-vain",
		Find: `if (\w+) != .* \{`,
		Put:  "if backend.AnswerOf($1) == backend.Unknown {",
		Test: "./rueidisbackend LookThatFoundNoServer",
	},
	{
		Name: "a ticket is given of what an Unlock releases", At: "detach-beside-unlock",
		Find: condition, Put: never, Test: "./locker DetachBesideAnUnlock",
	},
	{
		Name: "file: each process that finds no clock makes one", At: "file-one-clock",
		Find: `= .*\[0\]\..*\((\w+), false\)`, Put: "= func() {}, $1.Err()",
		Test: "./backend/filebackend OneClock",
	},
	{
		Name: "file: the turn is given on before the file is unlocked", At: "file-turn-last",
		Find: twoLines, Put: swapped, Test: "./backend/filebackend TurnIsGivenOn",
	},
	{
		Name: "rueidis: a connection that it gives up says that the client is closed",
		At:   "rueidis-closed-by-us", Find: ` && .*\(\),`, Put: ",",
		Test: "./rueidisbackend GivenUpConnection",
	},
	{
		Name: "rueidis: a lease that is over refuses from memory", At: "rueidis-held-lease",
		Find: ` && [^&]* > 0 \{`, Put: " {",
		Test: "./rueidisbackend HeldAnswersEndWithTheLease",
	},
	{
		Name: "rueidis: a hold that is over is remembered", At: "rueidis-held-since",
		Find: condition, Put: always,
		Test: "./rueidisbackend HeldAnswersOfAHold",
	},
	{
		Name: "lua: a token is given again where it is the minimum", At: "token-counter",
		Find: ` >= `, Put: " > ",
		Test: "./internal/redis/script MinimumTokenThatWasGiven",
	},
	{
		Name: "lua: the first place leaves a lock without an expiry", At: "join-expiry",
		Find: `if \w+ or `, Put: "if ",
		Test: "./internal/redis/script KeyOutlivesAll",
	},
	{
		Name: "lua: a reader's place leaves a lock without an expiry", At: "long-expiry",
		Find: `if not \w+ or `, Put: "if ",
		Test: "./internal/redis/script KeyOutlivesAll",
	},
	{
		Name: "lua: who watches is not heeded when the queue is empty", At: "marked-again",
		Find: luaCondition, Put: luaNever,
		Test: "./internal/redis/script WatcherBeside",
	},
	{
		Name: "rueidis: who waits sleeps on if it is free as it was", At: "rueidis-free-again",
		Find: `\((.*) \|\| [^|)]*\)`, Put: "$1",
		Test: "./rueidisbackend FreeAgain",
	},
	{
		Name: "postgres: what is swept goes whoever wrote it last", At: "pg-sweep-version",
		Find: " AND [^`]*", Put: "",
		Test: "./backend/pgbackend SweepLeavesWhatAnother",
	},
	{
		Name: "etcd: of many claims a later request that is not answered is a no",
		At:   "etcd-later-of-many", Find: `\((.*) \|\| .*\)`, Put: "$1",
		Test: "./etcdbackend LaterOfMany",
	},
	{
		Name: "lua: who is refused is told of the last reader's end", At: "ask-at-the-soonest",
		Find: ` < `, Put: " > ",
		Test: "./internal/redis/script WhenToAskAgain",
	},
	{
		Name: "lua: who does not wait in the queue is not told of the first one's end",
		At:   "ask-after-the-head",
		Find: luaCondition, Put: luaNever, Test: "./internal/redis/script WhenToAskAgain",
	},
	{
		Name: "lua: a heartbeat does not say when to ask", At: "heartbeat-asks", Find: luaCondition,
		Put:  luaNever,
		Test: "./internal/redis/script HeartbeatSaysWhenToAsk",
	},
	{
		Name: "lua: a lock does not outlast a renewal among others", At: "renewal-outlasts",
		Find: `.*`, Put: "",
		Test: "./internal/redis/script KeyOutlivesAll",
	},
	{
		Name: "lua: a lock that was handed over is kept as for who had it", At: "handed-keep",
		Find: `.*`, Put: "",
		Test: "./internal/redis/script KeyOutlivesAll",
	},
	{
		Name: "lua: releases leave a look for the dead behind the last", At: "drop-unseen",
		Find: `.*`, Put: "",
		Test: "./internal/redis/script ReleaseAllDuringAPurge",
	},
	{
		Name: "lua: who has reserved the most has damaged the lock", At: "most-reserved",
		Find: `> 1024`, Put: ">= 1024",
		Test: "./internal/redis/script TestReserve$",
	},
	{
		Name: "lua: a lease is a part of a millisecond short", At: "whole-lease", Find: ` \+ 1 `,
		Put:  " ",
		Test: "./internal/redis/script NothingEndsBeforeItsTime",
	},
	{
		Name: "lua: a renewal is a part of a millisecond short", At: "whole-renewal",
		Find: ` \+ 1 `, Put: " ",
		Test: "./internal/redis/script NothingEndsBeforeItsTime",
	},
	{
		Name: "lua: a hand-over is a part of a millisecond short", At: "whole-hand-over",
		Find: ` \+ 1 `, Put: " ",
		Test: "./internal/redis/script NothingEndsBeforeItsTime",
	},
	{
		Name: "lua: a hand-over gives the last token again", At: "handed-above", Find: ` \+ 1`,
		Put:  "",
		Test: "./internal/redis/script HandOverJustAhead",
	},
	{
		Name: "lua: nobody is told that the queue is empty", At: "left-place-wakes", Find: `.*`,
		Put:  "",
		Test: "./internal/redis/script PlaceThatIsLeft",
	},
	{
		Name: "dialect: a repeat does not lengthen the lease", At: "dialect-repeat", Find: `.*`,
		Put:  "",
		Test: "./internal/redis/script NothingEndsBeforeItsTime",
	},
	{
		Name: "dialect: what is beside a repeated lock ends", At: "dialect-repeat-kept", Find: `.*`,
		Put:  "",
		Test: "./internal/redis/script SideKeyOfTheDialect",
	},
	{
		Name: "etcd: reserved tokens of a quorum's hold are given again",
		At:   "etcd-reserved-counted", Find: `(\w+\.\w+)\+uint64.*$`, Put: "$1)",
		Test: "./etcdbackend TestConformance/one/min-token/reserved",
	},
	{
		Name: "record: who enters past the queue keeps its place", At: "record-entered-leaves",
		Find: statement, Put: skipped,
		Test: "./backend/membackend TestConformance$/reentrant",
	},
	{
		Name: "record: a full record refuses who is in it", At: "record-room",
		Find: `return .* && `,
		Put:  "return ", Test: "./backend/record TestFull$",
	},
	{
		Name: "a quorum that cannot say yes does not wait to hear that the hold is lost",
		At:   "quorum-lost-to-come", Find: `-__\(\) >= `, Put: " >= ",
		Test: "./redlock LastAnswerSays",
	},
	{
		Name: "who comes behind one that gives up gives up with it", At: "refused-not-cancelled",
		Find: ` && __\(\) == nil`, Put: "",
		Test: "./locker WhoComesBehindOneThatGivesUp",
	},
	{
		Name: "a heartbeat waits for a later one", At: "nearer-heartbeat", Find: ` && !.* \{`,
		Put: " {", Test: "./locker HeartbeatAtTheFirstEndOfTwo",
	},
	{
		Name: "wake-ups end with who asked for them", At: "subscription-outlives",
		Find: `WithoutCancel`, Put: "Context",
		Test: "./locker WakeUpsOutliveWhoAskedForThem",
	},
	{
		Name: "traced: a lock outlasts its caller", At: "traced-context", Find: `WithValue\((\w+),`,
		Put:  "WithValue(context.WithoutCancel($1),",
		Test: "./tracing TracedContextsEnd",
	},
	{
		Name: "etcd: keys are taken behind one that is held", At: "etcd-many-in-a-row",
		Find: `< len\(\w+\)`, Put: "< 1",
		Test: "./etcdbackend ManyUpToOneThatIsHeld",
	},
	{
		Name: "releases behind one without an answer are said to be made", At: "each-key-asked",
		Find: `__, (\w+) := .*\)`, Put: "$0; if $1 != nil { return }",
		Test: "./backend TogetherAsksForEachKey",
	},
	{
		Name: "file: a sweep does not look again", At: "file-sweep-again",
		Find: `(\*(__)), (__)\) \{\}`, Put: "r $1, _ $3) { *r = $2{} }",
		Test: "./backend/filebackend SweepLooksAgain",
	},
	{
		Name: "postgres: what is over is told by one's own clock", At: "pg-sweep",
		Find: `\.(\w+)\(__\) \{`, Put: ".$1(time.Now()) {",
		Test: "./backend/pgbackend SweepGoesByTheServersClock",
	},
	{
		Name: "All waits on when one of its locks is lost", At: "all-next-under", Find: statement,
		Put: skipped, Test: "./locker AllFailsWhenOneIsLost",
	},
	{
		Name: "a Lock that failed leaves its subscription", At: "first-unsubscribes",
		Find: statement,
		Put:  skipped, Test: "./locker SubscriptionEndsWith",
	},
	{
		Name: "what a panicking backend has granted stays", At: "panicked-withdrawn",
		Find: statement,
		Put:  skipped, Test: "./locker PanicOfTheFirst",
	},
	{
		Name: "the end of MaxHold is told as a loss", At: "lost-behind-close",
		Find: ` && !__\(__, ErrMaxHold\)`, Put: "", Test: "./locker LossBehindTheEnd",
	},
	{
		Name: "a loss during an Unlock is observed as an Unlock", At: "lost-in-unlock",
		Find: statement, Put: skipped, Test: "./locker LossBehindTheEnd",
	},
	{
		Name: "who is behind a full slot is not woken", At: "full-slot", Find: `default:`,
		Put: "default: return", Test: "./waiting HubWakesBeside",
	},
	{
		Name: "who has no wake-ups any more waits for them", At: "closed-polls", Find: statement,
		Put: skipped, Test: "./locker PollsWhereNobodySignals",
	},
	{
		Name: "Close waits for a reader's request", At: "close-ends-attempt", Find: statement,
		Put: skipped, Test: "./locker CloseEndsReaders",
	},
	{
		Name: "a reader waits although it is in vain", At: "vain-told", Find: statement,
		Put:  skipped,
		Test: "./locker FailFastOfReaders",
	},
	{
		Name: "a refused subscription asks nothing", At: "watch-refused", Find: statement,
		Put: skipped, Test: "./locker SubscriptionOfAHolder",
	},
	{
		Name: "a holder subscribes once", At: "watch-again", Find: condition, Put: always,
		Test: "./locker SubscriptionOfAHolder",
	},
	{
		Name: "a holder subscribes where there is nothing to hear", At: "watch-again",
		Find: `if (.*) \|\| `, Put: "if $1 && false || ", Test: "./locker SubscriptionOfAHolder",
	},
	{
		Name: "fewer answers to heartbeats are taken for all", At: "heartbeat-answers",
		Find: condition, Put: never, Test: "./locker FewerAnswers",
	},
	{
		Name: "fewer answers to releases are taken for all", At: "release-answers",
		Find: ` && .* \{`,
		Put:  " && false {", Test: "./locker FewerAnswers",
	},
	{
		Name: "a list without an answer is whole", At: "list-error", Find: statement, Put: skipped,
		Test: "./locker ListThatEndsWithout",
	},
	{
		Name: "record: a read without an answer finds nothing", At: "record-read", Find: condition,
		Put: never, Test: "./backend/record NoAnswerIsUnknown",
	},
	{
		Name: "a quorum takes a node that refuses for one that is away", At: "refused-counted",
		Find: statement, Put: skipped, Test: "./redlock MajorityThatRefuses",
	},
	{
		Name: "a quorum's watch goes on without a majority", At: "node-unsubscribed",
		Find: statement,
		Put:  "return", Test: "./redlock WatchGoesByTheMajority",
	},
	{
		Name: "a quorum counts a subscription that came too late", At: "node-subscribed-late",
		Find: statement, Put: skipped, Test: "./redlock WatchGoesByTheMajority",
	},
	{
		Name: "record: who was refused between two looks that see the same sleeps on",
		At:   "record-asked", Find: statement, Put: skipped,
		Test: "./backend/record WakeThoughTheRecord",
	},
	{
		Name: "heartbeats wait for one without an answer", At: "tick-sets", Find: statement,
		Put: skipped, Test: "./locker HeartbeatBesideOneWithout",
	},
	{
		Name: "traced: a key that is quoted in an error is shown", At: "quoted-key",
		Find: `, __, "…"\)\.`, Put: ").", Test: "./tracing KeysInErrors",
	},
	{
		Name: "traced: a key is taken out of the words that it is in", At: "key-in-errors",
		Find: condition, Put: never, Test: "./tracing KeysInErrors",
	},
	{
		Name: "traced: each wait is logged", At: "log-over", Find: ` __\.__ <= 0 \|\|`, Put: "",
		Test: "./tracing LogOverAndBarsOver",
	},
	{
		Name: "traced: the log shows keys", At: "log-key", Find: condition, Put: always,
		Test: "./tracing LogOverAndBarsOver",
	},
	{
		Name: "traced: an Unlock counts as a loss", At: "lost-counted", Find: condition,
		Put:  always,
		Test: "./tracing TestContended",
	},
	{
		Name: "traced: a refusal counts as one by quarantine", At: "quarantined-counted",
		Find: condition, Put: always, Test: "./tracing TestContended",
	},
	{
		Name: "traced: what went wrong at once has no span", At: "spans-wrong", Find: ` && !\w+ &&`,
		Put: " &&", Test: "./tracing SpansOverOfWhatIsWrong",
	},
	{
		Name: "All forgets a guard that its caller does not want any more", At: "all-counted",
		Find: `__ = append\(.*, (\w+)\)`, Put: "if $1.Context().Err() == nil { $0 }",
		Test: "./locker AllGivesBackWhatWasLocked",
	},
	{
		Name: "a value of PerKey that a hold has is free too", At: "taken-is-not-free",
		Find: statement, Put: skipped, Test: "./locker PerKeyAfterALoss",
	},
	{
		Name: "a hold that is ended by force stays on nodes by another name",
		At:   "force-every-name",
		Find: `\w+\((__)\) ==`, Put: "$1 ==", Test: "./redlock ForceReleaseOnNodes",
	},
	{
		Name: "the rest of a password behind its @ is shown", At: "password-with-at",
		Find: `Last(Index)`, Put: "$1", Test: "./backend TestRedact$",
	},
	{
		Name: "etcd: silence after a refusal is a no", At: "refused-then-silent", Find: `true\)`,
		Put: "false)", Test: "./etcdbackend TokenNotKnownAfterACopy",
	},
	{
		Name: "go-redis: a client that reads for ever counts as bounded", At: "client-bounded",
		Find: ` <= 0`, Put: " < 0", Test: "./redisbackend TestRequestTimeout$",
	},
	{
		Name: "run: a loss that the release tells of is no loss", At: "run-lost-late",
		Find: `case .*:`, Put: "case false:", Test: "./cmd/holdfast RunLearnsOfTheLoss",
	},
	{
		Name: "ticket: a renewed lease is counted from the answer", At: "ticket-renewed-left",
		Find: `- (time\.Since\(\w+\))`, Put: "+ 0*$1", Test: "./cmd/holdfast TicketAnsweredLate",
	},
	{
		Name: "etcd: an orphan that has gone is buried", At: "etcd-buried-as-read", Find: statement,
		Put: skipped, Test: "./etcdbackend OrphanThatGoesIsNotBuried",
	},
	{
		Name: "lua: who watched is not told by the last of a queue", At: "handed-marked",
		Find: ` \.\. ' '$`, Put: "", Test: "./internal/redis/script LastOfAQueueTells",
	},
	{
		Name: "a quorum tells a node of its token again and again", At: "told-once",
		Find: `(__ < __) && __ < __`, Put: "$1", Test: "./redlock TokenThatANodeDoesNotTake",
	},
	{
		Name: "a quorum's release waits for who was not asked", At: "owed-is-counted",
		Find: statement,
		Put:  skipped, Test: "./redlock ReleaseBesideOneThatIsNot",
	},
	{
		Name: "who does not wait for a quorum has a yes", At: "left-is-unknown", Find: condition,
		Put: never, Test: "./redlock RequestThatItsCallerLeaves",
	},
	{
		Name: "a release that few nodes tell of wakes nobody", At: "minority-wakes",
		Find: statement,
		Put:  skipped, Test: "./redlock WakeUpByOneNode",
	},
	{
		Name: "a quorum's watch waits for nodes that are away", At: "away-unsubscribed",
		Find: statement, Put: skipped, Test: "./redlock WatchWithoutAMajority",
	},
	{
		Name: "ended by force: another's claim on a node, too", At: "force-every-name",
		Find: condition, Put: always, Test: "./redlock ForceReleaseLeavesAnother",
	},
	{
		Name: "a quorum opens with a node that denies", At: "denied-at-open", Find: condition,
		Put: never, Test: "./redlock OpenWithANodeThatDenies",
	},
	{
		Name: "a hand-over that no replica has is a grant", At: "handed-unreplicated",
		Find: condition,
		Put:  never, Test: "./internal/redis HandOverThatNoReplica",
	},
	{
		Name: "redis: what could not be written was not sent", At: "not-made", Find: ` == "dial"`,
		Put: ` != "read"`, Test: "./redisbackend FailureClasses",
	},
	{
		Name: "etcd: what may yet be made of a refused attempt is forgotten",
		At:   "etcd-dropped-pending", Find: condition, Put: always,
		Test: "./etcdbackend FirstCopyComesAfterARefusal",
	},
	{
		Name: "a node without a name is in no list but its own", At: "list-unknown",
		Find: `:= \w+>>16 == 0 (.*) \w+>>16 == 0`, Put: ":= false $1 false",
		Test: "./redlock ListsOfNodesWithoutNames",
	},
	{
		Name: "both names of a server are barred", At: "twin-nameless", Find: statement,
		Put:  skipped,
		Test: "./redlock SameServerComesBack",
	},
	{
		Name: "a quorum is looked at by more than a majority", At: "majority-looked", Find: `>=`,
		Put: ">", Test: "./redlock ForceReleaseWithoutANode",
	},
	{
		Name: "nodes of a quorum that does not open stay open", At: "nodes-closed", Find: statement,
		Put: skipped, Test: "./redlock OpenWithANodeThatDenies",
	},
	{
		Name: "whoever holds one node hides that the others are away", At: "away-counted",
		Find: statement, Put: skipped, Test: "./redlock HolderBesideAMajorityThatIsAway",
	},
	{
		Name: "a node that takes a hold later does not hear its token", At: "renewal-tells",
		Find: statement, Put: skipped, Test: "./redlock RenewalsTellTheToken",
	},
	{
		Name: "a hook that fails keeps those before it from being called", At: "hooks-all-called",
		Find: `return \w+\.\w+\((\w+\(.*\)), (\w+\(.*\))\)$`,
		Put:  "if err := $1; err != nil { return err }; return $2", Test: "./locker ScopedSeveral",
	},
	{
		Name: "traced: what was got of many keys is told as nothing", At: "answers-as-they-are",
		Find: `return (\w+), (\w+)`,
		Put:  "if len($1) == 1 { $2 = backend.ErrHeld }; return $1, $2",
		Test: "./tracing ManyKeysInOneRequest",
	},
	{
		Name: "record: who watches when all have left is looked for by nobody", At: "lookout-ends",
		Find: `__ = (.*)\n(.*), __$`, Put: "$2, $1", Test: "./backend/record WhoComesAsTheRunEnds",
	},
	{
		Name: "record: a change is noticed in its first bytes only", At: "record-as-seen",
		Find: `string\((.*\))\)`, Put: "string($1[:4])",
		Test: "./backend/record RecordsWithOneChecksum",
	},
	{
		Name: "file: a folder that is opened again is that of the verbs that were given up",
		At:   "file-opened-again", Find: `(\w+)\.\w+, .* = (\w+)\..*$`, Put: "$1 = $2",
		Test: "./backend/filebackend VerbThatWasGivenUpBefore",
	},
	{
		Name: "file: who looks for a process that ended is taken for it", At: "file-probe",
		Find: `LOCK_SH`, Put: "LOCK_EX",
		Test: "./backend/filebackend TwoThatLookFor",
	},
	{
		Name: "mem: a client of a client does not keep the store's name", At: "mem-each-client",
		Find: `, __\)`, Put: `, "")`, Test: "./backend/membackend ClientOfAClient",
	},
	{
		Name: "what was got beside a holder with another list is kept", At: "other-list-gives-back",
		Find: statement, Put: skipped, Test: "./redlock MajorityOfAnotherList",
	},
	{
		Name: "a node without an answer to the acquire is never filled in", At: "fill-unanswered",
		Find: condition, Put: never, Test: "./redlock SilentAtTheAcquisition",
	},
	{
		Name: "a quorum's attempt waits for ever beside another call", At: "acquire-cut-short",
		Find: statement, Put: skipped, Test: "./redlock AttemptThatAnotherCall",
	},
	{
		Name: "ended by force on one node, and said to be nothing", At: "force-in-part",
		Find: condition, Put: never, Test: "./redlock ForceReleaseByAMinority",
	},
	{
		Name: "ended by force: a node where it was over is not done", At: "force-lost-is-done",
		Find: `!errors\.Is\((\w+), .*\) \{`, Put: "!errors.Is($1, context.Canceled) {",
		Test: "./redlock ForceReleaseByAMinority",
	},
	{
		Name: "a quorum lists what a minority has listed", At: "majority-listed", Find: condition,
		Put: never, Test: "./redlock ListMergesTheNodes",
	},
	{
		Name: "who leaves a quorum's list blames the nodes", At: "left-is-no-failure",
		Find: condition, Put: always, Test: "./redlock ListThatItsCallerLeaves",
	},
	{
		Name: "a quorum's list outlasts Close", At: "list-ends-at-close", Find: statement,
		Put: skipped, Test: "./redlock ListDuringClose",
	},
	{
		Name: "one holder whose time nodes show in other zones is several", At: "one-holder",
		Find: statement, Put: skipped, Test: "./redlock OneHolderThatNodesShow",
	},
	{
		Name: "one holder whose list has changed is several", At: "one-claim", Find: statement,
		Put: skipped, Test: "./redlock OneHolderThatNodesShow",
	},
	{
		Name: "rueidis: a first look signals a watch that is closed",
		At:   "rueidis-first-look-closed", Find: condition, Put: never,
		Test: "./rueidisbackend FirstLookDuringClose",
	},
	{
		Name: "redis: a counter is gone before the clock is there", At: "least-retention",
		Find: `max\((\w+), \w+\)`, Put: "$1",
		Test: "./internal/redis/script WhereLittleIsKept",
	},
	{
		Name: "redis: Close waits for a loop over a list", At: "list-close",
		Find: statement, Put: skipped,
		Test: "./internal/redis CloseInALoop",
	},
	{
		Name: "redis: Close does not wait for a page of a list", At: "list-counted",
		Find: `= .*$`, Put: "= nil", Test: "./internal/redis CloseWaitsForAPage",
	},
	{
		Name: "rueidis: what is known of refusals has no bound", At: "rueidis-held-bound",
		Find: condition, Put: never, Test: "./rueidisbackend HeldAnswersAreBounded",
	},
	{
		Name: "redis: a heartbeat asks a cluster for several slots", At: "heartbeat-one-server",
		Find: condition, Put: never, Test: "./internal/redis ManyLocksAreOnOneServer",
	},
	{
		Name: "redis: a list asks a cluster for several slots", At: "list-one-server",
		Find: condition, Put: never, Test: "./internal/redis ManyLocksAreOnOneServer",
	},
	{
		Name: "lua: what is saved is lost in a hand-over", At: "guard-hand-over",
		Find: `( and not \w+) and not \w+( and)`, Put: "$1$2",
		Test: "./internal/redis/script SavedAtAHandOver",
	},
	{
		Name: "lua: a lease that is moved into a hash is shorter", At: "join-clock",
		Find: `(.*)\n(.*)\n(\s*\w+\(\))`, Put: "$3\n$1\n$2",
		Test: "./internal/redis/script ServerThatStandsStill",
	},
	{
		Name: "lua: a heartbeat that let nobody in is not repeated", At: "heartbeat-more",
		Find: `if (\w+) then (\w+)`, Put: "if $1 and $2 > 0 then $2",
		Test: "./internal/redis/script PassesOverMany",
	},
	{
		Name: "rueidis: a refusal during a release is remembered",
		At:   "rueidis-forgets-released", Find: `(.*)\n(.*)$`, Put: "$2\n$1",
		Test: "./rueidisbackend RefusedDuringARelease",
	},
	{
		Name: "rueidis: one that waits looks as rarely as one that holds",
		At:   "rueidis-waiter-looks", Find: ` \|\| !\w+\.\w+ \|\| (\w+ >=)`, Put: " || $1",
		Test: "./rueidisbackend OneThatWaitsLooksSoon",
	},
	{
		Name: "postgres: a row is made by a time of long ago", At: "pg-timely-insert",
		Find: ` \|\| [^{]*\{`, Put: " {", Test: "./backend/pgbackend InsertAfterAStall",
	},
	{
		Name: "postgres: a row is made by the time of the answer before", At: "pg-absent-now",
		Find: statement, Put: skipped, Test: "./backend/pgbackend InsertAfterALateAnswer",
	},
	{
		Name: "postgres: a guess may be off by all of the skew", At: "pg-half",
		Find: `\((\w+) / 2\)`, Put: "$1", Test: "./backend/pgbackend GuessIsWithinHalf",
	},
	{
		Name: "postgres: what a client believes is not compared", At: "pg-believed",
		Find: `coalesce\((\S+), (\S+)\)`, Put: "coalesce($2, $1)",
		Test: "./backend/pgbackend NumberThatWasGivenTwice",
	},
	{
		Name: "postgres: a closed backend is looked at", At: "pg-diagnose-closed", Find: condition,
		Put: never, Test: "./backend/pgbackend DiagnoseEnds",
	},
	{
		Name: "postgres: a look at a silent server has no end", At: "pg-diagnose-silent",
		Find: `= __\((\w+), \w+\)`, Put: "= context.WithCancel($1)",
		Test: "./backend/pgbackend DiagnoseEnds",
	},
	{
		Name: "record: a swap of nothing may come at any time", At: "record-absent",
		Find: condition, Put: never, Test: "./backend/record LateSwapOfNothing",
	},
	{
		Name: "record: a list goes on when the backend is closed", At: "record-list-closed",
		Find: condition, Put: never, Test: "./backend/record CloseWithinAList|ListOfASilentStore",
	},
	{
		Name: "record: a list of a silent store has no end", At: "record-list-silent",
		Find: `, \w+\)`, Put: ", func() {})", Test: "./backend/record ListOfASilentStore",
	},
	{
		Name: "record: who is refused during a look that is late sleeps on",
		At:   "record-asked-meanwhile", Find: statement, Put: skipped,
		Test: "./backend/record AskedDuringALook",
	},
	{
		Name: "record: a subscription that was refused is one", At: "record-subscribed",
		Find: `= .* == nil`, Put: "= true", Test: "./backend/record SubscriptionAfterARefusal",
	},
	{
		Name: "etcd: what a machine slept is no part of a lease's age", At: "etcd-suspend",
		Find: condition, Put: never, Test: "./etcdbackend SuspendedTimeIsPartOfALease|LeaseLasts",
	},
	{
		Name: "etcd: a copy that is refused is the answer of one that was not answered",
		At:   "etcd-refused-copy", Find: condition, Put: never,
		Test: "./etcdbackend RefusalAfterACopy",
	},
	{
		Name: "etcd: a heartbeat is answered by an error of the backend's own context",
		At:   "etcd-heartbeat-answer", Find: statement, Put: skipped,
		Test: "./etcdbackend HeartbeatWithoutAKeepalive",
	},
	{
		Name: "etcd: an attempt asks for less than the claim's heartbeats need",
		At:   "etcd-heartbeat-ttl", Find: `max\((__), __\)`, Put: "$1",
		Test: "./etcdbackend HeartbeatForLongerThanTheAttempt",
	},
	{
		Name: "etcd: of orphans that end together all but the first stay",
		At:   "etcd-orphans-together", Find: `\((.*) \|\| .*\) \{`, Put: "($1 || true) {",
		Test: "./etcdbackend TestObserve$",
	},
	{
		Name: "etcd: a shadow that is not watched outlives its entry for who observes",
		At:   "etcd-ghost", Find: `return (__ == \w+) \|\| .*`, Put: "return $1",
		Test: "./etcdbackend ObserveSeesNoGhost",
	},
	{
		Name: "etcd: an event that was lost of a busy key is not found out", At: "etcd-lost-events",
		Find: ` \|\| (\w+\(.*\)\)) \{`, Put: " || false && $1 {",
		Test: "./etcdbackend ObserveFindsALostEvent",
	},
	{
		Name: "a MaxHold beyond all time ends nothing, and renews nothing", At: "max-hold-fits",
		Find: `min\((\w+\(.*\)), (.*)\)$`, Put: "$1+0*($2)", Test: "./locker MaxHoldBeyond",
	},
	{
		Name: "Close finds a lease that has no timer yet", At: "timer-before-found",
		Find: `((?:.*\n){2}.*)\n((?:.*\n){5}.*)$`, Put: "$2\n$1", Test: "./locker HasATimer",
	},
	{
		Name: "a release of what nobody can use keeps its caller", At: "unusable-behind",
		Find: `\w+\(func\(\) \{(?: //.*)?((?:\n.*){2})\n\t\}\)`, Put: "func() {$1\n\t}()",
		Test: "./locker AdoptComesBack|TurnThatComesTooLate",
	},
	{
		Name: "All names a goroutine of its own as the place of a lock", At: "site-of-all",
		Find: condition, Put: always, Test: "./locker LogNamesTheCaller",
	},
	{
		Name: "Lead takes another lock's loss for its own", At: "lead-own-loss",
		Find: `errors\.Is\((\w+), (\w+)\)( \|\| .*)\n(\s+if (\w+) != nil \{)`,
		Put:  "errors.Is(errors.Join($1, $5), $2)$3\n$4", Test: "./locker LossOfAnotherLock",
	},
	{
		Name: "a place that nobody signals lapses between two attempts", At: "polled-place",
		Find: condition, Put: never, Test: "./locker PlaceLastsWithout",
	},
	{
		Name: "a node that forgot its grant says that the claim was released",
		At:   "lapsed-asks-anew", Find: `(__\(\w+), \w+\((\w+)\)\)`, Put: "$1, $2)",
		Test: "./redlock LeasesThatEndBefore",
	},
	{
		Name: "run: it waits for a silent store when its command has ended",
		At:   "run-release-limit", Find: `= (.*)$`, Put: "= 10 * $1",
		Test: "./cmd/holdfast ReleaseThatIsNotConfirmed",
	},
	{
		Name: "an Unlock forgets that a renewal found something foreign", At: "refuted-unlock",
		Find: ` \|\| .*:`, Put: ":", Test: "./locker RenewalHasRefuted",
	},
	{
		Name: "who has given up is counted among those who wait", At: "gone-is-uncounted",
		Find: statement, Put: skipped, Test: "./locker HeartbeatsAfterManyGaveUp",
	},
	{
		Name: "a silence counts from when the waiter came", At: "silent-since-asked",
		Find: condition, Put: never, Test: "./locker SilenceCountsFrom",
	},
	{
		Name: "an unanswered release is left to a lease that goes on", At: "owed-until",
		Find: `\(__ \+ (\w+)\)`, Put: "($1)", Test: "./locker ReleaseIsRepeatedUntil",
	},
	{
		Name: "record: a minimum token raises one hold of its owner's", At: "record-owners-token",
		Find: ` \|\| .* \{`, Put: " {",
		Test: "./backend/membackend TestConformance$/min-token/one-owner",
	},
	{
		Name: "quorum: who observed an outage is not told of the holder from before",
		At:   "observed-anew", Find: `(\w+), \w+ = true, false`, Put: "$1 = true",
		Test: "./redlock TestObserveAfterAnOutage",
	},
	{
		Name: "quorum: tokens of nodes that take no minimum count", At: "tokens-in-order",
		Find: ` && \w+\.MinToken`, Put: "", Test: "./redlock TestFencingNeedsMinToken",
	},
	{
		Name: "record: a freed permit wakes nobody", At: "permit-freed",
		Find: `:= .*`, Put: ":= false",
		Test: "./backend/membackend TestConformance$/watch/permit-freed",
	},
	{
		Name: "a Check waits beyond its ctx for a renewal that is under way", At: "check-left",
		Find: `<-.*\)`, Put: "<-make(chan int)", Test: "./locker TestCheckShowsCtxErr",
	},
	{
		Name: "a campaign goes on under a guard of its key", At: "lead-deadlock",
		Find: `, \w+\.Is\(\w+, ErrDeadlock\)`, Put: "",
		Test: "./locker TestLeadUnderAGuardOfItsKey",
	},
	{
		Name: "redis: what is sent together ends with the first deadline", At: "last-deadline",
		Find: `(\w+)\.After\((\w+)\)`, Put: "$2.IsZero() || $1.Before($2)",
		Test: "./redisbackend TestBatchLastsForItsLastDeadline",
	},
	{
		Name: "command: who leads no more is not given its wait again", At: "leader-waits-anew",
		Find: `= (\w+)`, Put: "= $1 / 1000",
		Test: "./cmd/holdfast TestLeaderWaitsAnew",
	},
	{
		Name: "command: watch goes on, or ends well, where the store refuses",
		At:   "watch-ends-refused",
		Find: ` \|\| \w+\.Refused\(\w+\)`, Put: "",
		Test: "./cmd/holdfast TestWatchEndsWhereTheStoreRefuses",
	},
	{
		Name: "a wait for an answer never ends while the store answers others",
		At:   "busy-is-bounded", Find: ` \|\| __ >= 4\*\w+`, Put: "",
		Test: "./locker TestGrantThatComesTooLateIsAskedForAgain",
	},
	{
		Name: "postgres: what was told while the listener was broken is missed", At: "pg-missed",
		Find: statement, Put: "", Test: "./backend/pgbackend TestListenerIsBack",
	},
	{
		Name: "command: -E changes CMD's own status", At: "run-own-status",
		Find: `(\w+\.\w+ != nil)`, Put: "($1 || true)",
		Test: "./cmd/holdfast TestRunPassesStatusAndEnvironment",
	},
	{
		Name: "command: release --force stops at a hold that has ended", At: "force-goes-on",
		Find: `case .*:`, Put: "default:",
		Test: "./cmd/holdfast TestReleaseByForceWhileAHolderReleases",
	},
	{
		Name: "command: CMD is told to end again by the end of the longest hold",
		At:   "run-told-once",
		Find: statement, Put: "", Test: "./cmd/holdfast TestCommandIsToldToEndOnce",
	},
	{
		Name: "record: a heartbeat has a claim wait for its own owner", At: "record-owner-asks",
		Find: condition, Put: always,
		Test: "./locker TestOwnerEntersWhileItHolds",
	},
	{
		Name: "redis: a heartbeat has a claim wait for its own owner", At: "heartbeat-owner",
		Find: luaCondition, Put: "if true then",
		Test: "./redisbackend TestConformance/plain/reentrant/leaves-its-place",
	},
	{
		Name: "etcd: a heartbeat has a claim wait for its own owner", At: "etcd-owner-holds",
		Find: ` \|\| __\(\w+\) != nil`, Put: "",
		Test: "./etcdbackend HeartbeatOfAnOwnerThatHolds",
	},
	{
		Name: "etcd: the shadow of a long hold ends before it", At: "etcd-long-shadow",
		Find: `max\((\w+), .*\)\)`, Put: "$1)", Test: "./etcdbackend ShadowOfALongHold",
	},
	{
		Name: "etcd: tombstones stay on a lease that is gone", At: "etcd-tombstones-lease",
		Find: condition, Put: never, Test: "./etcdbackend TombstonesLeaseIsRevoked",
	},
	{
		Name: "etcd: a turn is handed over without a keepalive", At: "etcd-proof-lasts",
		Find: ` && __\(.*\) == nil`, Put: "", Test: "./etcdbackend ProofWithoutAKeepalive",
	},
	{
		Name: "etcd: orphans are buried for the shortest of their leases",
		At:   "etcd-longest-orphan",
		Find: `slices\.Max(Func)`, Put: "slices.Min$1",
		Test: "./etcdbackend OrphansOfUnequalLeases",
	},
	{
		Name: "redis: of several servers the first may not evict", At: "each-primary",
		Find: `range (\w+)`, Put: "range $1[:1]", Test: "./internal/redis ManyKeysOfAnUnfitServer",
	},
	{
		Name: "ticket: a lock of which there is none stays locked", At: "ticket-unconfirmed",
		Find: `\w+\.\w+\((.*), \w+\.\w+\(\)\)$`, Put: "$1",
		Test: "./cmd/holdfast TicketThatIsNotConfirmed",
	},
	{
		Name: "rueidis: who is to wait gets no place, as the holder is known", At: "rueidis-place",
		Find: `if __ \|\| `, Put: "if ", Test: "./rueidisbackend HeldAnswersGiveNoPlace",
	},
	{
		Name: "nodes that do not say who they are are one", At: "nobody-yet", Find: `case .*:`,
		Put: "case false:", Test: "./redlock ServersThatAreSlowToSay",
	},
	{
		Name: "a quorum's watch that nobody wants waits for the nodes", At: "watch-left",
		Find: statement, Put: skipped, Test: "./redlock WatchThatItsCallerLeaves",
	},
}
