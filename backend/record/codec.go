package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// How a value begins: that it is a record, and the version of its form.
const (
	magic   = "hfr"
	version = '1'
)

const headBytes, sumBytes = len(magic) + 1, crc32.Size

// sum is the checksum of a value that belongs to key: of the key and of all of the value but the
// sum.
func sum(key string, value []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // made once, by the library
	return crc32.Update(crc32.Checksum([]byte(key), table), table, value)
}

// Encode returns the record as the value of key. The same record always is the same value.
func (r *Record) Encode(key string) []byte {
	w := writer(magic + string(version))
	w.uint(r.Token)
	w.uint(r.Lapsed)
	w.time(r.Mark)
	if r.Saved == nil {
		w.uint(0)
	} else {
		w.uint(1 + uint64(len(r.Saved)))
		w = append(w, r.Saved...)
	}
	w.int(len(r.Holds))
	for i := range r.Holds {
		w.hold(&r.Holds[i])
	}
	w.int(len(r.Queue))
	for i := range r.Queue {
		w.place(&r.Queue[i])
	}
	if r.Ran == nil {
		w.int(len(r.Tombs))
	} else {
		w.int(1 + len(r.Tombs))
		w.text(runName(r.Ran))
		w.time(r.Ran.Kept)
	}
	for _, id := range slices.Sorted(maps.Keys(r.Tombs)) {
		w.text(id)
		w.time(r.Tombs[id])
	}
	return binary.BigEndian.AppendUint32(w, sum(key, w))
}

// Decode undoes Encode. No value, and an empty one, are the zero Record. What it cannot read is
// [backend.ErrForeign], and never a free lock: another program's value, one of a version that this
// one does not know, and one that is damaged or another key's.
func Decode(key string, value []byte) (*Record, error) {
	bad := func(why string) (*Record, error) {
		return nil, fmt.Errorf("%w: its value %s; it stays as it is until somebody deletes it, "+
			"which frees the lock", backend.ErrForeign, why)
	}
	switch {
	case len(value) == 0:
		return &Record{}, nil
	case len(value) < headBytes+sumBytes || string(value[:len(magic)]) != magic:
		return bad("was not written by holdfast")
	case value[len(magic)] != version: // safeguard: record-version
		return bad(fmt.Sprintf("has a form that this version does not know (%q)",
			value[:headBytes]))
	}
	body, end := value[:len(value)-sumBytes], value[len(value)-sumBytes:]
	if binary.BigEndian.Uint32(end) != sum(key, body) { // safeguard: record-sum
		return bad("is damaged, or another key's: its checksum is wrong")
	}
	rd := reader{left: body[headBytes:]}
	r := rd.record(key)
	if rd.bad || len(rd.left) > 0 {
		return bad("cannot be read")
	}
	return r, nil
}

// A writer appends what a record is made of: numbers as uvarints, texts with their length before
// them, times in nanoseconds since 1970, and 0 for none.
type writer []byte

func (w *writer) uint(n uint64) { *w = binary.AppendUvarint(*w, n) }

//nolint:gosec // a length, or it came from a claim that was validated
func (w *writer) int(n int) { w.uint(uint64(n)) }

func (w *writer) text(s string) {
	w.int(len(s))
	*w = append(*w, s...)
}

func (w *writer) time(t time.Time) {
	if t.IsZero() {
		w.uint(0)
	} else {
		w.length(time.Duration(t.UnixNano()))
	}
}

//nolint:gosec // not negative
func (w *writer) length(d time.Duration) { w.uint(uint64(max(d, 0))) }

// flags writes up to 8 flags as a byte.
func (w *writer) flags(flags ...bool) {
	b := byte(0)
	for i, set := range flags {
		if set {
			b |= 1 << i
		}
	}
	*w = append(*w, b)
}

func (w *writer) meta(m backend.Meta) {
	w.text(m.Service)
	w.text(m.Host)
	w.int(max(m.PID, 0))
	w.text(m.Traceparent)
	w.time(m.Since)
	w.text(m.Note)
	w.text(m.Waits)
	w.text(m.Quorum)
}

func (w *writer) names(owner, id string, reentrant bool) {
	w.text(owner)
	if reentrant {
		w.text(id)
	}
}

// hold writes a hold. The grant of one that was handed over is told by the hold and the record, but
// for its lease and who held before.
func (w *writer) hold(h *Hold) {
	handed := backend.Grant{}
	if h.Handed != nil {
		handed = *h.Handed
	}
	w.flags(h.Reentrant, h.Handed != nil, handed.State != nil)
	w.names(h.Owner, h.ID, h.Reentrant)
	w.int(int(h.Mode))
	w.int(h.Limit)
	w.int(h.Weight)
	w.uint(h.Token)
	w.int(h.Reserved)
	w.time(h.Expires)
	w.uint(h.TookOver)
	w.meta(h.Meta)
	if h.Handed == nil {
		return
	}
	w.length(handed.TTL)
	w.int(len(handed.Before))
	for _, p := range handed.Before {
		w.meta(p.Meta)
		w.uint(p.Token)
		w.length(p.For)
	}
}

func (w *writer) place(p *Place) {
	c := &p.Claim
	w.flags(c.Reentrant, c.Load)
	w.names(c.Owner, c.Hold, c.Reentrant)
	w.int(int(c.Mode))
	w.int(c.Limit)
	w.int(c.Weight)
	w.length(c.TTL)
	w.length(c.WaiterTTL)
	w.int(max(c.Reserve, 0))
	w.uint(c.MinToken)
	w.time(p.Until)
	w.meta(c.Meta)
}

// A reader undoes a writer. Once it is bad, all that it returns is nothing.
type reader struct {
	left []byte
	bad  bool
}

func (r *reader) uint() uint64 {
	n, size := binary.Uvarint(r.left)
	if size <= 0 {
		r.bad, r.left = true, nil
		return 0
	}
	r.left = r.left[size:]
	return n
}

// int reads a number that is at most limit.
func (r *reader) int(limit int) int {
	n := r.uint()
	if n > uint64(limit) { //nolint:gosec // not negative
		r.bad, r.left = true, nil
		return 0
	}
	return int(n) //nolint:gosec // see above
}

// bytes reads so many.
func (r *reader) bytes(n int) []byte {
	if n > len(r.left) {
		r.bad, r.left = true, nil
		return nil
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *reader) text() string { return string(r.bytes(r.int(len(r.left)))) }

//nolint:gosec // 63 bits
func (r *reader) length() time.Duration   { return time.Duration(r.uint() & (1<<63 - 1)) }
func (r *reader) flag(b byte, n int) bool { return b&(1<<n) != 0 }

func (r *reader) flags() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) time() time.Time {
	if n := r.length(); n != 0 {
		return time.Unix(0, int64(n))
	}
	return time.Time{}
}

func (r *reader) meta() backend.Meta {
	return backend.Meta{
		Service: r.text(), Host: r.text(), PID: r.int(1<<31 - 1), Traceparent: r.text(),
		Since: r.time(),
		Note:  r.text(), Waits: r.text(), Quorum: r.text(),
	}
}

func (r *reader) names(reentrant bool) (owner, id string) {
	owner = r.text()
	if !reentrant {
		return owner, owner
	}
	return owner, r.text()
}

// record reads all but the head and the sum. It stops at the first element
// that is not there, so no length asks for more memory than the value gives reason to.
func (r *reader) record(key string) *Record {
	rec := &Record{Token: r.uint(), Lapsed: r.uint(), Mark: r.time()}
	if n := r.int(1 + len(r.left)); n > 0 {
		rec.Saved = append([]byte{}, r.bytes(n-1)...)
	}
	for n := r.int(len(r.left)); n > 0 && !r.bad; n-- {
		rec.Holds = append(rec.Holds, r.hold(rec))
	}
	for n := r.int(len(r.left)); n > 0 && !r.bad; n-- {
		rec.Queue = append(rec.Queue, r.place(key))
	}
	for n := r.int(len(r.left)); n > 0 && !r.bad; n-- {
		if rec.Tombs == nil {
			rec.Tombs = map[string]time.Time{}
		}
		id, until := r.text(), r.time()
		if run := readRun(id, until); run != nil {
			rec.Ran = run
		} else {
			rec.Tombs[id] = until
		}
	}
	if len(rec.Tombs) == 0 {
		rec.Tombs = nil
	}
	return rec
}

// A run stands before the tombstones, under a name that no claim is given: so versions that know no
// run keep it, and drop it when it is over.
const runForm = "\x00run %d %d %d"

func runName(run *Run) string {
	return fmt.Sprintf(runForm, run.Token, run.Began.UnixNano(), run.Every)
}

// readRun undoes runName; nil is a tombstone.
func readRun(name string, kept time.Time) *Run {
	run, began := Run{Kept: kept}, int64(0)
	n, err := fmt.Sscanf(name, runForm, &run.Token, &began, &run.Every)
	if run.Began = time.Unix(0, began); n != 3 || err != nil || runName(&run) != name {
		return nil
	}
	return &run
}

func (r *reader) hold(rec *Record) Hold {
	f := r.flags()
	h := Hold{Reentrant: r.flag(f, 0)}
	h.Owner, h.ID = r.names(h.Reentrant)
	//nolint:gosec // at most 2
	h.Mode, h.Limit, h.Weight = backend.Mode(r.int(int(backend.Permit))), r.int(backend.MaxPermits),
		r.int(backend.MaxPermits)
	h.Token, h.Reserved, h.Expires, h.TookOver, h.Meta = r.uint(), r.int(backend.MaxReserve),
		r.time(), r.uint(), r.meta()
	if !r.flag(f, 1) {
		return h
	}
	h.Handed = &backend.Grant{
		Token: h.Token, Reserved: h.Reserved, TookOver: h.TookOver,
		TTL: r.length(),
	}
	if r.flag(f, 2) {
		h.Handed.State = slices.Clone(rec.Saved)
	}
	for n := r.int(backend.MaxBefore); n > 0 && !r.bad; n-- {
		h.Handed.Before = append(h.Handed.Before,
			backend.Past{Meta: r.meta(), Token: r.uint(), For: r.length()})
	}
	return h
}

func (r *reader) place(key string) Place {
	f := r.flags()
	c := backend.Claim{Key: key, Queue: true, Reentrant: r.flag(f, 0), Load: r.flag(f, 1)}
	owner, id := r.names(c.Reentrant)
	if c.Owner = owner; c.Reentrant {
		c.Hold = id
	}
	//nolint:gosec // at most 2
	c.Mode, c.Limit, c.Weight = backend.Mode(r.int(int(backend.Permit))), r.int(backend.MaxPermits),
		r.int(backend.MaxPermits)
	c.TTL, c.WaiterTTL, c.Reserve, c.MinToken = r.length(), r.length(), r.int(backend.MaxReserve),
		r.uint()
	p := Place{Until: r.time()}
	c.Meta = r.meta()
	p.Claim = c
	return p
}
