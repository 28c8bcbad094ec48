package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/holdfast-go/holdfast/locker"
)

var (
	errStale   = errors.New("a newer holder has been here: fencing token refused")
	errSoldOut = errors.New("sold out")
)

// A ledger is the stock of the sale, kept in a file of lines that are only ever appended. Appending
// is atomic, so the order of the lines decides, and everybody who reads them comes to the same
// account. Changing the stock is not atomic: a buyer reads how much is left, thinks, and appends
// what is left then. Two that do so at once sell one item twice.
type ledger struct {
	process int // whose handle this is; 0 for the parent, which only reads

	mu   sync.Mutex // guards what follows
	file *os.File
	seq  int   // of our last line
	read int64 // how far the file was read
	account
}

// An entry is one line. There are two kinds: a holder shows its token, and an item is sold.
type entry struct {
	kind                 string
	token                uint64 // 0 without a lock
	process, worker, seq int
	left                 int // after a sale
}

const (
	kindShown = "shown"
	kindSold  = "sold"
)

func (e entry) String() string {
	return fmt.Sprintf("%s %d %d %d %d %d\n", e.kind, e.token, e.process, e.worker, e.seq, e.left)
}

func parseEntry(line []byte) (e entry, err error) {
	_, err = fmt.Sscanf(string(line), "%s %d %d %d %d %d", &e.kind, &e.token, &e.process, &e.worker, &e.seq, &e.left)
	return e, err
}

// An account is what the lines of a ledger amount to.
type account struct {
	left    int
	sold    map[buyer]int
	first   uint64 // token
	highest uint64
	doubled bool // one token was given to two holds
	refused int
}

// A buyer is one worker of one process.
type buyer struct{ process, worker int }

// apply adds e to the account and reports whether it counts. A line with a token below the highest
// one is void: it is of a holder that lost its lock and does not know. Unlike a check before
// writing, this cannot be overtaken.
func (a *account) apply(e entry) bool {
	if e.token != 0 {
		if e.token < a.highest {
			a.refused++
			return false
		}
		a.doubled = a.doubled || e.kind == kindShown && e.token == a.highest
		a.highest = e.token
		if a.first == 0 {
			a.first = e.token
		}
	}
	if e.kind == kindSold {
		a.left = e.left
		a.sold[buyer{e.process, e.worker}]++
	}
	return true
}

// total is how many items were sold, however many there were.
func (a *account) total() (n int) {
	for _, sold := range a.sold {
		n += sold
	}
	return n
}

// oversell is how many more items were sold than were taken off the stock. It is never negative:
// for the stock to fall to n, somebody must have found n+1, so every number in between was written
// once at least.
func (a *account) oversell(stock int) int { return a.total() - (stock - a.left) }

// openLedger opens the ledger at path, and makes it if there is none. All who open it must give the
// same stock.
func openLedger(path string, stock, process int) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &ledger{process: process, file: file, account: account{left: stock, sold: map[buyer]int{}}}, nil
}

func (l *ledger) close() { _ = l.file.Close() }

// audit reads what was appended so far and returns the account.
func (l *ledger) audit() (account, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.catchUp(0)
	return l.account, err
}

// post appends e and reports whether it counted.
func (l *ledger) post(e entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	e.process, e.seq = l.process, l.seq
	if _, err := l.file.WriteString(e.String()); err != nil { // one write: one line, whole
		return err
	}
	counted, err := l.catchUp(e.seq)
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
		e, err := parseEntry(line)
		if err != nil {
			return false, fmt.Errorf("ledger: bad line %q: %w", line, err)
		}
		if ok := l.apply(e); ok && e.process == l.process && e.seq == seq {
			counted = true
		}
		l.read += int64(len(line))
	}
	return counted, nil
}

// A shelf is the stock as one hold sees it. It is what the guards of this demo protect.
type shelf struct {
	ledger *ledger
	token  uint64
}

// bind is the [locker.Binder]. It shows the token to the ledger before anything is read: were it
// shown only when writing, an older holder could still write between our reading and our writing.
func (l *ledger) bind(_ context.Context, h locker.Hold) (*shelf, error) {
	return &shelf{l, h.Token}, l.post(entry{kind: kindShown, token: h.Token})
}

// unguarded is the shelf for those who take no lock: nothing is refused.
func (l *ledger) unguarded() *shelf { return &shelf{ledger: l} }

// look returns how much is left, unless a newer holder has been here.
func (s *shelf) look() (left int, err error) {
	a, err := s.ledger.audit()
	if err == nil && s.token != 0 && s.token < a.highest {
		err = errStale
	}
	return a.left, err
}

// sell appends that an item was sold and how much is left now, unless a newer holder has been here.
func (s *shelf) sell(worker, left int) error {
	return s.ledger.post(entry{kind: kindSold, token: s.token, worker: worker, left: left})
}
