package backendtest

import (
	"github.com/holdfast-go/holdfast/backend"
)

var state = backend.Capabilities{State: true}

var stateRules = []rule{
	{
		name: "state/saved-by-holder", run: savedByHolder, needs: state,
		why: "The key's state is loaded with the lock and saved with its release, and a claim " +
			"that lost the lock cannot write.",
	},
	{
		name: "state/empty", run: stateEmpty, needs: state,
		why: "Never saved is nil, and an empty state is empty: who starts from nothing can tell " +
			"it from who finished.",
	},
	{
		name: "state/not-by-another", run: stateByAnother, needs: state,
		why: "While one holds, no other writes its state, whatever it once held.",
	},
	{
		name: "state/not-in-line", run: stateInLine, needs: backend.Capabilities{
			State: true,
			Queue: true,
		},
		why: "A place in the queue is no hold: a waiter writes nothing, also by leaving.",
	},
	{
		name: "state/not-after-expiry", run: stateAfterExpiry, needs: state,
		why: "The holder that slept through its lease is the one that a lock cannot stop from " +
			"writing elsewhere. Here it can, also" +
			" when nobody came after it.",
	},
	{
		name: "state/attempt-saves-nothing", run: stateAttempt, needs: state,
		why: "Save is for Renew and Release. A claim that is repeated after a lost reply must " +
			"not write an old state over its own.",
	},
	{
		name: "state/survives", run: stateSurvives, needs: state,
		why: "The state is what one holder leaves for the next: it outlives holds that ended " +
			"well or badly, and clients.",
	},
	{
		name: "state/other-keys", run: stateOtherKeys, needs: state,
		why: "A state is of one key, and no name of a key is that of another's state.",
	},
	{
		name: "state/repeat", run: stateRepeat, needs: state,
		why: "A repeat after a lost reply loads as the reply would have, and what c " +
			"has saved since.",
	},
	{
		name: "state/renew-extends", run: stateRenewExtends, needs: state,
		why: "Renew with Save is a renewal like any other: a holder that saves often " +
			"needs no other.",
	},
	{
		name: "state/handed-over", run: stateHandedOver, needs: backend.Capabilities{
			State: true,
			Queue: true, Watch: true, Fencing: true,
		},
		why: "A grant that is handed over carries what its release saved. One without it would " +
			"be worked on from nothing.",
	},
	{
		name: "state/limit", run: stateLimit, needs: state,
		why: "Any bytes up to MaxState come back as they were. More is refused before anything " +
			"is written, and the lock stays held.",
	},
	{
		name: "state/own-memory", run: stateOwnMemory, needs: state,
		why: "What is stored changes by Save only, and not because a caller uses a buffer again.",
	},
	{
		name: "state/modes", run: stateModes, needs: backend.Capabilities{
			State: true, Shared: true,
			Permit: true, Reentrant: true,
		},
		why: "Every kind of hold loads and saves: each may be granted by another path " +
			"of a backend.",
	},
	{
		name: "state/read", run: stateRead, needs: state,
		why: "Who only looks needs no lock, and keeps nobody from it: Saved tells what the last " +
			"holder saved, also while another holds.",
	},
	{
		name: "state/race", run: stateRace, needs: state,
		why: "State and grant are one step. A state that was read before the grant is the one " +
			"before the last holder's.",
	},
}
