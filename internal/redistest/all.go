package redistest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// manyKeys are a hundred keys of a server that a client locks together.
type manyKeys struct {
	*testing.T
	srv    *testserver.Server
	direct backend.Backend
	l      *locker.Client[struct{}]
	keys   []string
}

// All is a test: a hundred free keys are locked by two requests and unlocked by two, and each is
// held. What the server does not answer leaves nothing behind, and no hold is taken for lost.
//
// covers: A2, A4, C1
func All(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	m := &manyKeys{T: t, srv: srv, direct: Closing(t, scheme+"://"+srv.Addr())}
	m.l = Quiet(t, Closing(t, scheme+"://"+proxy.Addr()), locker.Config{})
	for i := range 100 {
		m.keys = append(m.keys, fmt.Sprintf("all-%03d", i))
	}
	m.unlock(m.lock()) // the scripts are loaded
	m.requests()
	cut := testserver.Fault{
		Mode:  testserver.ExecuteThenCut,
		Match: testserver.Containing("all-000"), Next: 1,
	}
	all := m.lock()
	proxy.Set(cut)
	m.unlock(all)
	m.held(0)
	proxy.Set(cut)
	all = m.lock()
	m.held(len(m.keys))
	m.unlock(all)
	m.held(0)
	if n := proxy.Counts().Dropped; n < 2 {
		t.Errorf("%d replies were lost, want two", n)
	}
	m.behindOne()
}

func (m *manyKeys) lock() *locker.Guards[struct{}] {
	m.Helper()
	all, err := locker.All(m.Context(), m.l, m.keys)
	if err != nil {
		m.Fatal(err)
	}
	return all
}

func (m *manyKeys) unlock(all *locker.Guards[struct{}]) {
	m.Helper()
	if err := all.Unlock(); err != nil {
		m.Errorf("Unlock = %v", err)
	}
}

func (m *manyKeys) state(key string) backend.State {
	m.Helper()
	state, err := m.direct.Inspect(m.Context(), key)
	if err != nil {
		m.Fatal(err)
	}
	return state
}

func (m *manyKeys) holders() (n int) {
	m.Helper()
	for _, key := range m.keys {
		n += len(m.state(key).Holders)
	}
	return n
}

func (m *manyKeys) held(want int) {
	m.Helper()
	if n := m.holders(); n != want {
		m.Errorf("%d keys are held, want %d", n, want)
	}
}

// requests locks and unlocks twice.
func (m *manyKeys) requests() {
	m.Helper()
	last := make([]uint64, len(m.keys))
	for range 2 {
		before := scripts(m.srv)
		all := m.lock()
		if n := scripts(m.srv) - before; n != 2 {
			m.Errorf("locked by %d requests", n)
		}
		m.held(len(m.keys))
		for i, key := range m.keys {
			token := all.Guard(key).Hold().Token
			if state := m.state(key); len(state.Holders) != 1 || state.Holders[0].Token != token ||
				token <= last[i] {
				m.Fatalf("%s: %+v; its guard has token %d, after %d", key, state, token, last[i])
			}
			last[i] = token
		}
		before = scripts(m.srv)
		m.unlock(all)
		if n := scripts(m.srv) - before; n != 2 {
			m.Errorf("unlocked by %d requests", n)
		}
		m.held(0)
	}
}

// behindOne has another hold a key in the middle: what is behind it is not taken before it is.
func (m *manyKeys) behindOne() {
	m.Helper()
	holder := storetest.Claim(m.keys[50])
	storetest.Acquired(m, m.direct, holder)
	if _, err := locker.All(m.Context(), m.l, m.keys,
		locker.WaitLimit(storetest.Patience/100)); !errors.Is(err, backend.ErrHeld) {
		m.Errorf("All with a key that another holds = %v", err)
	}
	until(m, "what was held to be given back", func() bool { return m.holders() == 1 })
	got := make(chan *locker.Guards[struct{}])
	go func() {
		all, err := locker.All(m.Context(), m.l, m.keys)
		if err != nil {
			m.Error(err)
		}
		got <- all
	}()
	until(m, "All to wait", func() bool { return len(m.state(holder.Key).Waiters) == 1 })
	m.held(51)
	if err := storetest.Release(m.Context(), m.direct, holder); err != nil {
		m.Error(err)
	}
	m.unlock(<-got)
	m.held(0)
}
