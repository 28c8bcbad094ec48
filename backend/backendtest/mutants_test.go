package backendtest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
)

// A recorder is a test that notes what it is told, so that a rule can fail without failing the test
// about it.
type recorder struct {
	testing.TB

	mu     sync.Mutex
	failed bool
	lines  []string
}

func (r *recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.lines = append(r.lines, strings.TrimSuffix(text, "\n"))
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func (r *recorder) Helper()                   {}
func (r *recorder) Log(args ...any)           { r.note(false, fmt.Sprintln(args...)) }
func (r *recorder) Logf(f string, a ...any)   { r.note(false, fmt.Sprintf(f, a...)) }
func (r *recorder) Error(args ...any)         { r.note(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(args ...any)         { r.Error(args...); r.FailNow() }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); r.FailNow() }
func (r *recorder) Fail()                     { r.note(true, "") }
func (r *recorder) FailNow()                  { r.Fail(); runtime.Goexit() }

// try runs a rule in a bubble of its own and returns what it said.
func try(t *testing.T, s suite, r rule) *recorder {
	t.Helper()
	rec := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		rec.TB = t
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.check(rec, r)
		}()
		<-done
	})
	return rec
}

// TestModelIsCorrect shows that the suite has nothing against the model as long as no defect is
// switched on: what it says of a mutant is about the mutant. The model also stands for the
// capabilities that no shipped backend has yet.
func TestModelIsCorrect(t *testing.T) { Run(t, modelHarness(modelCaps, "")) }

// TestLessIsCorrect runs the suite on a backend that claims next to nothing.
func TestLessIsCorrect(t *testing.T) {
	h := modelHarness(backend.Capabilities{MinTTL: modelCaps.MinTTL}, "")
	open := h.Open
	h.Open = func(t testing.TB) backend.Backend { return modest{open(t)} }
	Run(t, h)
}

// TestMutants shows that the suite finds each defect, by the rule that is about it, which tells a
// broken promise from all else.
func TestMutants(t *testing.T) {
	for defect, finder := range broken {
		t.Run(strings.ReplaceAll(defect, " ", "-"), func(t *testing.T) {
			finds(t, defect, finder, true)
		})
	}
	for defect, finder := range mutants {
		t.Run(strings.ReplaceAll(defect, " ", "-"), func(t *testing.T) {
			finds(t, defect, finder, false)
		})
	}
}

func finds(t *testing.T, defect, finder string, unsafe bool) {
	caps := modelCaps
	if defect == "unclaimed modes granted" {
		caps = backend.Capabilities{
			Fencing: true, Watch: true, Inspect: true,
			MinTTL: modelCaps.MinTTL,
		}
	}
	s := suite{h: modelHarness(caps, defect), caps: caps, name: "TestMutants"}
	chosen, _ := s.choose(rules(true))
	var found []string
	for _, r := range chosen {
		if r.name != finder && os.Getenv("HOLDFAST_ALL_RULES") == "" {
			// others may find it as well; here each is to be found by the rule that is about it
			continue
		}
		if rec := try(t, s, r); rec.Failed() {
			found = append(found, r.name)
			if said := strings.Contains(rec.text(), history.Broken); r.name == finder &&
				said != unsafe {
				t.Errorf("%s speaks of a broken promise: %v, want %v:\n%s", r.name, said, unsafe,
					rec.text())
			}
			if !strings.Contains(rec.text(), r.why) {
				t.Errorf("%s failed without saying why the rule exists:\n%s", r.name, rec.text())
			}
		}
	}
	if len(found) == 0 {
		t.Errorf("%s did not find it", finder)
	}
	t.Logf("found by %s", strings.Join(found, ", "))
}

// broken are the defects of the model that break a promise: two hold at once, a token falls, who
// lost its lock is not told, or a value is another's. Each has the rule that is to find it, and to
// say so.
var broken = map[string]string{
	"release-all: the last is left":                         "release-all/each",
	"release-all: ends at what is lost":                     "release-all/each",
	"release-all: ends whoever holds":                       "release-all/own",
	"release-all: saves nothing":                            "release-all/saves",
	"release-all: readers go together":                      "release-all/shared",
	"try-all: whoever holds":                                "try-all/first",
	"try-all: the last is not kept":                         "try-all/free",
	"try-all: goes on behind what is held":                  "try-all/first",
	"try-all: another's grant":                              "try-all/free",
	"try-release-all: of anything":                          "try-all/input",
	"try-release-all: whoever holds":                        "try-all/own",
	"try-release-all: always yes":                           "try-all/own",
	"minimum token is the token":                            "min-token/never-lowers",
	"minimum token not written back":                        "min-token/written-back",
	"raised for others alone":                               "min-token/repeat",
	"raised for one hold of an owner":                       "min-token/one-owner",
	"a late minimum token lowers":                           "min-token/repeat",
	"reserved tokens do not rise":                           "min-token/reserved",
	"who waits has a token":                                 "min-token/handed-over",
	"a hold that is over is released while its owner holds": "adopt/once",
	"anybody may release":                                   "release/by-another",
	"anybody may release when none is in flight":            "release/by-another",
	"release after expiry says yes":                         "release/after-expiry",
	"release of nothing says yes":                           "release/never-held",
	"token constant":                                        "token/rises",
	"token from the clock":                                  "token/fast",
	"token counter forgotten at expiry":                     "token/across-expiry",
	"token counter forgotten at release":                    "token/rises",
	"counter dropped with the key":                          "token/across-drop",
	"renew revives":                                         "renew/never-revives",
	"renew creates":                                         "renew/never-acquired",
	"renew ignores the owner":                               "renew/by-another",
	"renew shortens":                                        "renew/never-shortens",
	"renew does nothing":                                    "renew/extends",
	"repeat has a new token":                                "repeat/same-grant",
	"repeat shortens":                                       "repeat/never-shortens",
	"repeat keeps the old lease":                            "repeat/extends",
	"TTL rounded down":                                      "expiry/not-early",
	"look and write are two steps":                          "exclusive/race",
	"owner is the client":                                   "exclusive/not-re-entrant",
	"refused claims stay":                                   "exclusive/refusal-changes-nothing",
	"Close releases":                                        "close/keeps-holds",
	"any hold is released by force":                         "force-release/holder",
	"a hold is known by its token alone":                    "force-release/one-of-several",
	"the state of a held key cannot be seen":                "state/read",
	"limit not counted":                                     "permit/limit",
	"a weight counts as one":                                "permit/weights",
	"weights are added in two steps":                        "permit/weights-race",
	"anybody may save":                                      "state/saved-by-holder",
	"the last to hold may save":                             "state/not-after-expiry",
	"who waits may save":                                    "state/not-in-line",
	"an empty state is none":                                "state/empty",
	"a state is the caller's memory":                        "state/own-memory",
	"a grant lends its state":                               "state/own-memory",
	"a repeat has the state of its grant":                   "state/repeat",
	"release saves after the hand-over":                     "state/handed-over",
	"a wake-up has no state":                                "state/handed-over",
	"a release saves any size":                              "state/limit",
	"a state goes with its hold":                            "state/survives",
	"a state goes with its lease":                           "state/survives",
	"an attempt saves":                                      "state/attempt-saves-nothing",
	"one state for all keys":                                "state/other-keys",
	"the state is read before the grant":                    "state/race",
	"a re-entry has no state":                               "state/modes",
	"one release ends all re-entries":                       "reentrant/same-owner",
	"limits may differ":                                     "permit/limits-differ",
	"readers beside a writer":                               "modes/exclude",
	"reserved tokens are given away":                        "reserve/apart",
	"more is reserved than taken":                           "reserve/apart",
	"a wake-up has another token":                           "handoff/wake",
	"a wake-up has the lease of a TTL":                      "handoff/wake",

	"a grant that was handed over lasts a WaiterTTL, however long": "handoff/wake",
}

// mutants are the others, which delay, block or mislead, or leave something behind: no rule is to
// say more than that.
var mutants = map[string]string{
	"nobody is told of the dead":                      "took-over/told",
	"release-all: of any number":                      "release-all/input",
	"release-all: places stay":                        "release-all/places",
	"release-all: no tombstones":                      "release-all/in-flight",
	"release-all: the last alone wakes":               "release-all/wakes",
	"try-all: says that it cannot when it is asked":   "try-all/input",
	"try-all: of anything":                            "try-all/input",
	"try-all: no tombstones":                          "try-all/late",
	"try-release-all: lets in who waits":              "try-all/waited",
	"try-release-all: no wake-up":                     "try-all/wakes",
	"minimum token ignored":                           "min-token/granted",
	"minimum token not clamped":                       "min-token/clamped",
	"anybody may raise the token":                     "min-token/by-another",
	"a release tells of nobody":                       "release/who-waited",
	"a release tells of itself":                       "release/nobody-waited",
	"a release tells of those whom it leaves waiting": "release/who-waited",
	"release checks the TTL":                          "input/release",
	"wake-up before the release":                      "watch/free-when-woken",
	"no wake-up":                                      "watch/subscribed",
	"a freed permit wakes nobody":                     "watch/permit-freed",
	"watch is silent":                                 "watch/own-client",
	"watch subscribes after it returned":              "watch/subscribed",
	"watch goes on after ctx":                         "watch/ends",
	"one watcher at a time":                           "watch/many",
	"the first to leave ends all watches":             "watch/others-stay",
	"signals go to all keys":                          "watch/other-keys",
	"signals block the release":                       "watch/unread",
	"renew does not check its TTL":                    "input/renew",
	"no tombstone":                                    "tombstone/late-attempt",
	"tombstones not looked at":                        "tombstone/late-copy",
	"no tombstone for what never held":                "tombstone/late-attempt",
	"no tombstone for what held":                      "tombstone/late-copy",
	"one tombstone for all":                           "tombstone/outlives-others",
	"tombstones lifted by the next release":           "tombstone/outlives-others",
	"many tombstones break the key":                   "tombstone/many",
	"repeat refused":                                  "repeat/same-grant",
	"repeats are counted":                             "repeat/counts-once",
	"TTL of the grant is rounded down":                "expiry/not-early",
	"the dead are told of for ever":                   "took-over/told",
	"leases never end":                                "expiry/ends",
	"TTL not checked":                                 "input/ttl",
	"keys not checked":                                "input/key",
	"owners not checked":                              "input/claim",
	"unclaimed modes granted":                         "capabilities/refused",
	"capabilities end with Close":                     "close/later-calls",
	"no RetryAfter":                                   "exclusive/held-tells",
	"no holder in HeldError":                          "exclusive/held-tells",
	"held is unknown":                                 "exclusive/one-holder",
	"foreign data called held":                        "foreign/refused",
	"foreign data overwritten":                        "foreign/refused",
	"case folded":                                     "keys/distinct",
	"spaces trimmed":                                  "keys/distinct",
	"percent decoded":                                 "keys/distinct",
	"names nested":                                    "keys/nested",
	"ctx ignored":                                     "context/done",
	"cause instead of ctx.Err":                        "context/done",
	"done ctx is a no":                                "context/unknown",
	"works after Close":                               "close/later-calls",
	"Close fails the second time":                     "close/twice",
	"inspect shows what has run out":                  "inspect/free",
	"inspect shows no owner":                          "inspect/holder",
	"inspect extends":                                 "inspect/changes-nothing",
	"observation looks each minute":                   "observe/every-hold",
	"observation begins with a change":                "observe/now",
	"observation goes on after ctx":                   "observe/ends",
	"observation goes on after Close":                 "observe/closed",
	"one of several is observed":                      "observe/shared",
	"free locks are listed":                           "list/held-and-waited-for",
	"a prefix is a pattern":                           "list/names",
	"an owner's name stands for its holds":            "force-release/re-entrant",
	"one lease for all readers":                       "shared/own-lease",
	"a repeat weighs again":                           "permit/weights-repeat",
	"light claims pass a heavy one":                   "permit/weights-in-line",
	"permits are let in one by one":                   "permit/weights-handed-over",
	"the weight of who died stays":                    "permit/weights-crash",
	"inspect shows no weights":                        "permit/weights-shown",
	"renew saves or extends":                          "state/renew-extends",
	"the line is overtaken":                           "queue/readers-and-writer",
	"owners do not re-enter":                          "reentrant/same-owner",
	"re-entry has a new token":                        "reentrant/same-owner",
	"tombstones go by owner":                          "reentrant/tombstone",
	"token of HeldError is from the future":           "exclusive/held-tells",
	"readers overtake a writer in the queue":          "queue/readers-and-writer",
	"readers are let in one by one":                   "queue/readers-and-writer",
	"asking again goes to the end":                    "queue/in-order",
	"last come, first served":                         "queue/in-order",
	"places never lapse":                              "queue/lapsed",
	"places are not refreshed":                        "queue/refreshed",
	"a grant that was handed over lasts a TTL":        "handoff/unclaimed",
	"hand-off without a wake-up":                      "handoff/wake",
	"nobody tells who held":                           "handoff/before",
	"who held first is told":                          "handoff/before",
	"a place keeps its name":                          "handoff/renamed",
	"release does not hand over":                      "handoff/same-step",
	"grants are announced to all":                     "handoff/wake",
	"cancelled claims stay in the queue":              "queue/leaves",
	"all in the queue are told to ask":                "fair/retry-after",
	"the head is not told when to ask":                "fair/retry-after",
	"a refusal has no token of hand-offs":             "fair/token",
	"a grant is not passed on at cancel":              "fair/passed-on",
	"leaving lets nobody in":                          "fair/passed-on",
	"re-entry waits in the queue":                     "reentrant/past-the-line",
	"a repeated permit takes another":                 "permit/repeat",
	"limits of the queue do not count":                "permit/limit-of-the-line",
	"limits are kept for ever":                        "permit/limit-may-change",
	"expired leases are first come":                   "fair/expiry",
	"all are told the first place":                    "fair/race",
}
