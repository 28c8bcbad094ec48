package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

var (
	errStale   = errors.New("a newer holder has been here: fencing token refused")
	errSoldOut = errors.New("sold out")
)

// A ledger is the stock of the sale, kept in a file of lines that are only ever appended. Appending
// is atomic, so the order of the lines decides, and everybody who reads them comes to the same
// account. Changing the stock is not atomic: a buyer reads how much is left, thinks, and appends
// what is left then. Two that do so at once sell one item twice. What else the processes have to
// tell the parent is there, too.
type ledger struct {
	process int // whose handle this is; 0 for the parent

	mu   sync.Mutex // guards what follows
	file *os.File
	seq  int   // of our last line
	read int64 // how far the file was read
	account
}

// An entry is one line.
type entry struct {
	Kind    string
	Process int
	Seq     int
	Token   uint64        `json:",omitzero"` // of the hold; 0 without a lock
	Left    int           `json:",omitzero"` // after a sale
	Wait    time.Duration `json:",omitzero"` // from asking for the lock to having it
	Lost    bool          `json:",omitzero"` // the lock, before it was unlocked
	At      time.Time     `json:",omitzero"`
	PID     int           `json:",omitzero"`
	Slow    *slowest      `json:",omitzero"`
	Error   string        `json:",omitzero"`
}

// The kinds of entries.
const (
	kindReady  = "ready"  // the process has its store open
	kindShown  = "shown"  // a holder shows its token
	kindSold   = "sold"   // an item is sold
	kindTurn   = "turn"   // a hold has ended
	kindFrozen = "frozen" // a buyer has stopped in mid-hold, as it was told to
	kindKilled = "killed" // the parent kills the process of that buyer
	kindSlow   = "slow"   // which of the process's buyers waited for the longest
	kindFailed = "failed" // the process gives up
	kindUnsent = "unsent" // it was traced, and not all traces got through
)

// An account is what the lines of a ledger amount to.
type account struct {
	left    int
	sold    int    // however many there were
	first   uint64 // token
	highest uint64
	doubled bool // one token was given to two holds
	refused int
	lost    int

	waits          []time.Duration
	pids           map[int]int // of processes that are ready, to their numbers
	frozen         kill        // about to be killed
	kill           *kill
	slow           *slowest
	failed, unsent error
}

// apply adds e to the account and reports whether it counts.
func (a *account) apply(e entry) bool {
	switch e.Kind {
	case kindShown, kindSold:
		return a.holder(e)
	case kindTurn:
		if e.Token != 0 {
			a.waits = append(a.waits, e.Wait)
		}
		if e.Lost {
			a.lost++
		}
	case kindReady:
		a.pids[e.PID] = e.Process
	case kindFrozen:
		a.frozen = kill{Process: e.Process, PID: e.PID, Token: e.Token}
	case kindKilled:
		k := a.frozen
		k.at = e.At
		a.kill = &k
	case kindSlow:
		if a.slow == nil || e.Slow.ForMS > a.slow.ForMS {
			a.slow = e.Slow
		}
	case kindFailed:
		a.failed = errors.New(e.Error)
	case kindUnsent:
		a.unsent = errors.New(e.Error)
	}
	return true
}

// holder adds what a holder writes. With a token below the highest one it is void: the holder has
// lost its lock and does not know. Unlike a check before writing, this cannot be overtaken.
func (a *account) holder(e entry) bool {
	if e.Token != 0 && e.Token < a.highest {
		a.refused++
		return false
	}
	if e.Kind == kindSold {
		a.left = e.Left
		a.sold++
		return true
	}
	a.doubled = a.doubled || e.Token == a.highest
	a.highest = e.Token
	if a.first == 0 {
		a.first = e.Token
	}
	if k := a.kill; k != nil && k.NextToken == 0 && e.Token > k.Token {
		k.NextToken, k.FreeMS = e.Token, ms(e.At.Sub(k.at))
	}
	return true
}

// oversell is how many more items were sold than were taken off the stock. It is never negative:
// for the stock to fall to n, somebody must have found n+1, so every number in between was written
// once at least.
func (a *account) oversell(stock int) int { return a.sold - (stock - a.left) }

// line says how far the sale is.
func (a *account) line(stock int) string {
	line := fmt.Sprintf("sold %d of %d", a.sold, stock)
	if a.kill != nil && a.kill.NextToken == 0 {
		line += ", waiting for the lease of the killed process to end"
	}
	return line
}

// openLedger opens the ledger at path, and makes it if there is none. All who open it must give the
// same stock.
func openLedger(path string, stock, process int) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	none := account{left: stock, pids: map[int]int{}}
	return &ledger{process: process, file: file, account: none}, nil
}

func (l *ledger) close() { _ = l.file.Close() }

// audit reads what was appended so far and returns the account.
func (l *ledger) audit() (account, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.catchUp(0)
	return l.account, err
}

// post appends e. The error is [errStale] if it does not count.
func (l *ledger) post(e entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	e.Process, e.Seq = l.process, l.seq
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil { // one write: one line, whole
		return err
	}
	counted, err := l.catchUp(e.Seq)
	if err == nil && !counted {
		err = errStale
	}
	return err
}

// catchUp applies the lines that were appended since. It reports whether the line with our number
// seq counted.
func (l *ledger) catchUp(seq int) (counted bool, err error) {
	news, err := io.ReadAll(io.NewSectionReader(l.file, l.read, 1<<62))
	if err != nil {
		return false, err
	}
	news = news[:bytes.LastIndexByte(news, '\n')+1] // a line that is being written waits
	for line := range bytes.Lines(news) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return false, fmt.Errorf("ledger: bad line %q: %w", line, err)
		}
		if ok := l.apply(e); ok && e.Process == l.process && e.Seq == seq {
			counted = true
		}
		l.read += int64(len(line))
	}
	return counted, nil
}

// A shelf is the stock as one hold sees it. It is what the guards of this demo protect.
type shelf struct {
	ledger *ledger
	token  uint64 // 0 for those who take no lock: nothing is refused
}

// bind is the [locker.Binder]. It shows the token to the ledger before anything is read: were it
// shown only when writing, an older holder could still write between our reading and our writing.
func (l *ledger) bind(_ context.Context, h locker.Hold) (*shelf, error) {
	return &shelf{l, h.Token}, l.post(entry{Kind: kindShown, Token: h.Token, At: time.Now()})
}

// look returns how much is left, unless a newer holder has been here.
func (s *shelf) look() (left int, err error) {
	a, err := s.ledger.audit()
	if err == nil && s.token != 0 && s.token < a.highest {
		err = errStale
	}
	return a.left, err
}

// sell appends that an item was sold and how much is left now, unless a newer holder has been here.
func (s *shelf) sell(left int) error {
	return s.ledger.post(entry{Kind: kindSold, Token: s.token, Left: left})
}
