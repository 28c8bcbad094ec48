package memstore

import (
	"slices"
	"time"
)

// An Image is all that a store has of one key, as data: for who keeps it elsewhere between two
// verbs, which are then made by a store that has this key alone.
type Image struct {
	Holds []Hold               `json:",omitempty"`
	Line  []Place              `json:",omitempty"`
	Token uint64               // the last of the store's
	Tombs map[string]time.Time `json:",omitempty"` // by Claim.ID
	Mark  time.Time            `json:",omitzero"`  // see Claim.NotBefore
	Saved []byte               // nil if none was ever saved, and empty is a state
}

// Image returns what the store has of key. It shares no memory that the store goes on to change.
func (s *Store) Image(key string) Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	image := Image{Token: s.token, Saved: slices.Clone(s.saved[key])}
	if l := s.locks[key]; l != nil {
		image.Holds, image.Line = slices.Clone(l.holds), slices.Clone(l.line)
	}
	if until := s.marks[key]; until.After(now) {
		image.Mark = until
	}
	for t, until := range s.tombs {
		if t.key == key && until.After(now) {
			if image.Tombs == nil {
				image.Tombs = map[string]time.Time{}
			}
			image.Tombs[t.id] = until
		}
	}
	return image
}

// Load puts what Image has returned into a store that has nothing of key yet.
func (s *Store) Load(key string, image Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = max(s.token, image.Token)
	if len(image.Holds)+len(image.Line) > 0 {
		s.locks[key] = &lock{holds: slices.Clone(image.Holds), line: slices.Clone(image.Line), token: image.Token}
	}
	if image.Saved != nil {
		s.saved[key] = slices.Clone(image.Saved)
	}
	if !image.Mark.IsZero() {
		s.marks[key] = image.Mark
	}
	for id, until := range image.Tombs {
		s.tombs[tombstone{key, id}] = until
	}
}

// Without returns the image without the holds and places of the claims that gone names.
func (i Image) Without(gone func(id string) bool) Image {
	i.Holds = slices.DeleteFunc(slices.Clone(i.Holds), func(h Hold) bool { return gone(h.ID) })
	i.Line = slices.DeleteFunc(slices.Clone(i.Line), func(p Place) bool { return gone(p.Claim.ID()) })
	return i
}

// Lasting returns what outlives every hold: the last token, the state and the mark.
func (i Image) Lasting() Image { return Image{Token: i.Token, Saved: i.Saved, Mark: i.Mark} }

// Weighted reports whether a claim of the image counts for more than one permit.
func (i Image) Weighted() bool {
	return slices.ContainsFunc(i.Holds, func(h Hold) bool { return h.Weight > 1 }) ||
		slices.ContainsFunc(i.Line, func(p Place) bool { return p.Claim.Weight > 1 })
}

// Empty reports whether nothing but the last token is in the image.
func (i Image) Empty() bool {
	return len(i.Holds)+len(i.Line)+len(i.Tombs) == 0 && i.Mark.IsZero() && i.Saved == nil
}

// Open reports whether a claim that does not stand in line may be let in.
func (s *Store) Open(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.at(key, s.now())
	defer s.forget(key, l)
	return l.open()
}
