package backendtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

func (m *model) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if err := m.validate(c); err != nil {
		return backend.Grant{}, err
	}
	if err := m.enter(ctx); err != nil {
		return backend.Grant{}, err
	}
	if m.is("look and write are two steps") {
		m.mu.Lock()
		k := m.key(c.Key)
		m.expire(k)
		h := k.conflicts(c, m.modelStore)
		m.mu.Unlock()
		if h == nil {
			time.Sleep(time.Millisecond)
			m.mu.Lock()
			k.holds = nil
			m.mu.Unlock()
		}
	}
	if m.is("weights are added in two steps") && c.Mode == backend.Permit {
		m.mu.Lock()
		k := m.key(c.Key)
		m.expire(k)
		fits := k.of(c.ID()) == nil && k.conflicts(c, m.modelStore) == nil
		m.mu.Unlock()
		if fits {
			time.Sleep(time.Millisecond)
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.grant(k, c, c.TTL), nil
		}
	}
	return m.loaded(c)
}

func (m *model) acquire(c backend.Claim) (backend.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.key(c.Key)
	if m.expire(k); !m.is("expired leases are first come") || len(k.holds) > 0 ||
		len(k.line) == 0 || k.place(c.ID()) >= 0 {
		m.advance(k, c.ID())
	} else {
		return m.grant(k, c, c.TTL), nil
	}
	if k.foreign != "" {
		switch {
		case m.is("foreign data called held"):
			return backend.Grant{}, &backend.HeldError{RetryAfter: time.Second}
		case m.is("foreign data overwritten"):
			k.foreign = ""
		default:
			return backend.Grant{}, backend.ErrForeign
		}
	}
	if k.tombs[m.grave(c)] && !m.is("tombstones not looked at") {
		return backend.Grant{}, backend.ErrLost
	}
	if len(k.tombs) > 64 && m.is("many tombstones break the key") {
		return backend.Grant{}, errors.New("too many tombstones")
	}
	if h := k.of(c.ID()); h != nil && !m.is("repeat refused") {
		return m.repeat(k, h, c), nil
	}
	if m.is("limits are kept for ever") && c.Mode == backend.Permit {
		if k.limit != 0 && k.limit != c.Limit {
			return backend.Grant{}, backend.ErrMismatch
		}
		k.limit = c.Limit
	}
	if k.mismatch(c, !m.is("limits of the queue do not count")) && !m.is("limits may differ") {
		return backend.Grant{}, backend.ErrMismatch
	}
	if err := m.blocked(k, c); err != nil {
		return backend.Grant{}, err
	}
	return m.grant(k, c, c.TTL), nil
}

// grave is what a tombstone of c goes by.
func (m *model) grave(c backend.Claim) string {
	if m.is("tombstones go by owner") {
		return c.Owner
	}
	return c.ID()
}

// blocked is why c must wait, nil if it need not.
func (m *model) blocked(k *modelKey, c backend.Claim) error {
	h := k.conflicts(c, m.modelStore)
	if h != nil && m.is("owner is the client") && h.claim.Meta.PID == c.Meta.PID {
		h = nil
	}
	if h == nil && (len(k.line) == 0 || k.entered(c) != nil &&
		!m.is("re-entry waits in the queue") || m.is("the line is overtaken") && !c.Queue ||
		m.is("readers overtake a writer in the queue") && c.Mode == backend.Shared) {
		return nil
	}
	held := &backend.HeldError{Token: k.token}
	if m.is("a refusal has no token of hand-offs") && len(k.holds) > 0 {
		held.Token = k.holds[0].grant.Token + 1
	}
	if c.Queue {
		m.stand(k, c)
		held.Position = k.place(c.ID()) + 1
		if m.is("all are told the first place") {
			held.Position = 1
		}
	}
	if h == nil {
		return held
	}
	held.RetryAfter, held.Holder = time.Until(h.expires), h.claim.Meta
	if held.Position > 1 && !m.is("all in the queue are told to ask") {
		held.RetryAfter = 0
	}
	switch {
	case m.is("no RetryAfter"), m.is("the head is not told when to ask") && c.Queue:
		held.RetryAfter = 0
	case m.is("no holder in HeldError"):
		held.Holder = backend.Meta{}
	case m.is("token of HeldError is from the future"):
		held.Token = 1 << 60
	case m.is("refused claims stay"):
		k.holds = append(k.holds, &modelHold{claim: c, expires: time.Now().Add(c.TTL)})
	case m.is("held is unknown"):
		return errors.New("taken")
	}
	return held
}

func (m *model) stand(k *modelKey, c backend.Claim) {
	p := modelPlace{c, time.Now().Add(c.WaiterTTL)}
	i := k.place(c.ID())
	if i >= 0 && m.is("asking again goes to the end") {
		k.leaveLine(c.ID())
		i = -1
	}
	switch {
	case i < 0 && m.is("last come, first served"):
		k.line = slices.Insert(k.line, 0, p)
	case i < 0:
		k.line = append(k.line, p)
	case !m.is("places are not refreshed"):
		k.line[i].until = latest(k.line[i].until, p.until)
	}
	if i >= 0 && !m.is("a place keeps its name") {
		k.line[i].claim.Meta = c.Meta
	}
}

// advance lets in whom there is room for, in order.
func (m *model) advance(k *modelKey, asker string, before ...backend.Past) {
	m.expire(k)
	for {
		i := slices.IndexFunc(k.line, func(p modelPlace) bool {
			return k.conflicts(p.claim, m.modelStore) == nil
		})
		if i < 0 || i > 0 && !m.is("light claims pass a heavy one") {
			return
		}
		c := k.line[i].claim
		lease := min(c.WaiterTTL, c.TTL)
		switch {
		case m.is("a grant that was handed over lasts a TTL"):
			lease = c.TTL
		case m.is("a grant that was handed over lasts a WaiterTTL, however long"):
			lease = c.WaiterTTL
		}
		g := m.grant(k, c, lease)
		if c.ID() != asker && !m.is("hand-off without a wake-up") {
			switch n := len(before); {
			case m.is("nobody tells who held"):
			case m.is("who held first is told"):
				g.Before = before[:min(n, backend.MaxBefore)]
			default:
				g.Before = before[max(0, n-backend.MaxBefore):]
			}
			m.deliver(c, m.heard(g))
		}
		if m.is("readers are let in one by one") || c.Mode == backend.Permit &&
			m.is("permits are let in one by one") {
			return
		}
	}
}

func (m *model) grant(k *modelKey, c backend.Claim, lease time.Duration) backend.Grant {
	k.leaveLine(c.ID())
	g := backend.Grant{TTL: lease, Reserved: max(c.Reserve, 1)}
	if own := k.entered(c); own != nil && !m.is("re-entry has a new token") {
		g.Token, g.Reserved = own.grant.Token, own.grant.Reserved
	} else {
		g.Token = max(m.token+1, m.minToken(c))
		m.token = g.Token + uint64(g.Reserved) - 1
	}
	switch {
	case m.is("token constant"):
		m.token = 1
		g.Token = 1
	case m.is("token from the clock"):
		g.Token = uint64(time.Now().UnixMicro())
	case m.is("reserved tokens are given away"):
		m.token = g.Token
	case m.is("more is reserved than taken"):
		g.Reserved++
	}
	if g.TookOver = k.lapsed; !m.is("the dead are told of for ever") {
		k.lapsed = 0
	}
	k.token, k.last = m.token, c.ID()
	k.holds = append(k.holds, &modelHold{claim: c, grant: g, expires: m.ending(lease)})
	if m.is("TTL of the grant is rounded down") {
		g.TTL = g.TTL.Truncate(time.Second)
	}
	m.load(k, c, &g)
	if m.is("an attempt saves") {
		m.save(k, c)
	}
	return g
}

func (m *model) repeat(k *modelKey, h *modelHold, c backend.Claim) backend.Grant {
	h.repeats++
	if m.is("a repeated permit takes another") && c.Mode == backend.Permit {
		k.holds = append(k.holds, &modelHold{claim: c, grant: h.grant, expires: m.ending(c.TTL)})
	}
	switch {
	case m.is("repeat shortens"):
		h.expires = m.ending(c.TTL)
	case m.is("repeat keeps the old lease"):
	default:
		h.expires = latest(h.expires, m.ending(c.TTL))
	}
	if m.is("repeat has a new token") {
		m.token++
		h.grant.Token = m.token
	}
	m.share(k, h)
	g := h.grant
	g.TTL = c.TTL
	if !m.is("a repeat has the state of its grant") {
		m.load(k, c, &g)
	}
	return g
}

// share is a defect: all holds of a key have one lease.
func (m *model) share(k *modelKey, h *modelHold) {
	if m.is("one lease for all readers") {
		for _, other := range k.holds {
			other.expires = h.expires
		}
	}
}

// ending is when a lease that begins now is over.
func (s *modelStore) ending(ttl time.Duration) time.Time {
	if s.is("TTL rounded down") {
		ttl = ttl.Truncate(time.Millisecond)
	}
	return time.Now().Add(ttl)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (m *model) Renew(ctx context.Context, c backend.Claim) error {
	if m.is("renew does not check its TTL") {
		c.TTL = time.Second
	}
	if err := m.validate(c); err != nil {
		return err
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.key(c.Key)
	if !m.is("renew revives") {
		m.advance(k, "")
	}
	h := k.of(c.ID())
	if h == nil && m.is("renew ignores the owner") && len(k.holds) > 0 {
		h = k.holds[0]
	}
	if h == nil && m.is("renew creates") {
		m.grant(k, c, c.TTL)
		return nil
	}
	if h == nil {
		if m.is("anybody may raise the token") {
			m.token = max(m.token, c.MinToken)
		}
		m.saveLost(k, c)
		return backend.ErrLost
	}
	switch {
	case m.is("renew does nothing"), m.is("renew saves or extends") && c.Save != nil:
	case m.is("renew shortens"):
		h.expires = m.ending(c.TTL)
	default:
		h.expires = latest(h.expires, m.ending(c.TTL))
	}
	m.share(k, h)
	m.raise(k, h, c)
	m.save(k, c)
	return nil
}

func (m *model) Release(ctx context.Context, c backend.Claim) (told backend.Released, err error) {
	if err := c.ValidateRelease(m.caps); err != nil && !m.is("keys not checked") &&
		!m.is("a release saves any size") {
		return backend.Released{}, err
	}
	if m.is("release checks the TTL") {
		if err := m.validate(c); err != nil {
			return backend.Released{}, err
		}
	}
	if err := m.enter(ctx); err != nil {
		return backend.Released{}, err
	}
	if m.is("wake-up before the release") {
		m.signal(c.Key)
		time.Sleep(time.Millisecond)
	}
	if told, err = m.release(c); err == nil && !m.is("no wake-up") &&
		!m.is("wake-up before the release") {
		m.signal(c.Key)
	}
	return told, err
}

func (m *model) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if len(claims) > backend.MaxReleaseAll && !m.is("release-all: of any number") {
		return nil, &backend.InvalidError{Field: "claims"}
	}
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	answers := make([]error, len(claims))
	for i, c := range claims {
		switch {
		case m.is("release-all: the last is left") && i > 0 && i == len(claims)-1:
			answers[i] = backend.ErrLost
			continue
		case m.is("release-all: ends at what is lost") && i > 0 && answers[i-1] != nil:
			answers[i] = answers[i-1]
			continue
		case m.is("release-all: ends whoever holds"):
			if k := m.key(c.Key); len(k.holds) > 0 {
				c = k.holds[0].claim
			}
		case m.is("release-all: places stay") && c.Queue:
			answers[i] = backend.ErrLost
			continue
		case m.is("release-all: no tombstones"):
			c.NoneInFlight = true
		case m.is("release-all: saves nothing"):
			c.Save = nil
		case m.is("release-all: readers go together") && c.Mode == backend.Shared:
			m.key(c.Key).holds = nil
		}
		if answers[i] = c.ValidateRelease(m.caps); answers[i] == nil {
			_, answers[i] = m.release(c)
			if answers[i] == nil && i == len(claims)-1 ||
				!m.is("release-all: the last alone wakes") {
				m.signal(c.Key)
			}
		}
	}
	return answers, nil
}

func (m *model) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) (grants []backend.Grant, err error) {
	if m.is("try-all: says that it cannot when it is asked") && len(claims) > 0 {
		return m.Base.TryAcquireAll(ctx, claims)
	}
	if err := backend.ValidateTryAcquireAll(claims, m.caps); err != nil &&
		!m.is("try-all: of anything") {
		return nil, err
	}
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	for i, c := range claims {
		switch {
		case m.is("try-all: no tombstones"):
			m.mu.Lock()
			delete(m.key(c.Key).tombs, c.ID())
			m.mu.Unlock()
		case m.is("try-all: whoever holds"):
			m.mu.Lock()
			m.key(c.Key).holds = nil
			m.mu.Unlock()
		}
		g, err := m.acquire(c)
		switch {
		case err == nil:
			grants = append(grants, g)
			if m.is("try-all: the last is not kept") && i > 0 && i == len(claims)-1 {
				_, _ = m.release(c)
			}
		case m.is("try-all: goes on behind what is held"):
		default:
			return grants, nil
		}
	}
	if m.is("try-all: another's grant") && len(grants) > 1 {
		grants[0], grants[1] = grants[1], grants[0]
	}
	return grants, nil
}

func (m *model) TryReleaseAll(ctx context.Context, claims []backend.Claim) ([]bool, error) {
	if err := backend.ValidateTryReleaseAll(claims, m.caps); err != nil &&
		!m.is("try-release-all: of anything") {
		return nil, err
	}
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	released := make([]bool, len(claims))
	for i, c := range claims {
		m.mu.Lock()
		k := m.key(c.Key)
		m.expire(k)
		if m.is("try-release-all: whoever holds") && len(k.holds) > 0 {
			c = k.holds[0].claim
		}
		mine := k.of(c.ID()) != nil &&
			(len(k.line) == 0 || m.is("try-release-all: lets in who waits"))
		m.mu.Unlock()
		if mine {
			_, err := m.release(c)
			released[i] = err == nil
		}
		if mine && !m.is("try-release-all: no wake-up") {
			m.signal(c.Key)
		}
		released[i] = released[i] || m.is("try-release-all: always yes")
	}
	return released, nil
}

func (m *model) release(c backend.Claim) (told backend.Released, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.key(c.Key)
	if k.foreign != "" {
		return told, backend.ErrForeign
	}
	before := k.of(c.ID())
	m.expire(k)
	m.bury(k, c)
	if !m.is("cancelled claims stay in the queue") {
		k.leaveLine(c.ID())
	}
	h := k.of(c.ID())
	if h == nil && len(k.holds) > 0 &&
		(m.is("anybody may release") || m.is("anybody may release when none is in flight") &&
			c.NoneInFlight) {
		h = k.holds[0]
	}
	switch {
	case h == nil:
		m.saveLost(k, c)
	case m.is("release saves after the hand-over"):
		defer m.save(k, c)
	default:
		m.save(k, c)
	}
	if m.is("a state goes with its hold") && c.Save == nil && h != nil {
		k.state = nil
	}
	if h == nil {
		if !m.is("leaving lets nobody in") {
			m.advance(k, "")
		}
		if before != nil && m.is("release after expiry says yes") ||
			m.is("release of nothing says yes") {
			return told, nil
		}
		if m.is("a hold that is over is released while its owner holds") && len(k.holds) > 0 &&
			k.holds[0].claim.Owner == c.Owner {
			return told, nil
		}
		return told, backend.ErrLost
	}
	if h.repeats > 0 && m.is("repeats are counted") {
		h.repeats--
		return told, nil
	}
	k.holds = slices.DeleteFunc(k.holds, func(o *modelHold) bool {
		return o == h || m.is("one release ends all re-entries") && o.claim.Owner == h.claim.Owner
	})
	if m.is("token counter forgotten at release") {
		m.token = 0
	}
	waits := func() backend.Released {
		if len(k.line) == 0 || m.is("a release tells of nobody") {
			return backend.Released{}
		}
		return backend.Released{Waiting: len(k.line), Next: k.line[0].claim.Meta}
	}
	if told = waits(); m.is("a release tells of itself") {
		told.Waiting++
	}
	if !m.is("release does not hand over") &&
		!(m.is("a grant is not passed on at cancel") && h.claim.Queue && h.repeats == 0) {
		m.advance(k, "", slices.Clone(c.Before)...)
	}
	if m.is("a release tells of those whom it leaves waiting") {
		told = waits()
	}
	return told, nil
}

// bury leaves c's tombstone.
func (m *model) bury(k *modelKey, c backend.Claim) {
	held := k.of(c.ID()) != nil
	switch {
	case c.NoneInFlight, m.is("no tombstone"), m.is("no tombstone for what never held") &&
		!held, m.is("no tombstone for what held") && held:
	default:
		if m.is("one tombstone for all") {
			clear(k.tombs)
		}
		k.tombs[m.grave(c)] = true
	}
	if m.is("tombstones lifted by the next release") && held {
		clear(k.tombs)
	}
}
