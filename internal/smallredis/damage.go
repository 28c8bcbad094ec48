package smallredis

import (
	"fmt"
	"math/rand/v2"
)

// Damage returns a command that damages what a key has: another program's doing, or a defect's. It
// draws which from r, and follows from what the key has.
func (s *Server) Damage(r *rand.Rand, key string) []string {
	any := func(of ...string) string { return of[r.IntN(len(of))] }
	number := any("", "?", "-1", "0", "7", "9007199254740990", "99999999999999999", "3 4")
	v := s.get(key)
	switch {
	case v == nil || r.IntN(8) == 0:
		if v == nil && r.IntN(2) == 0 {
			return []string{"HSET", key, "f", number}
		}
		return []string{
			"SET", key, any("x", "h3 1", "h2 "+number, "h2", "h2 9007199254740990"),
			"PX", "90000000",
		}
	case v.fields == nil:
		return [][]string{
			{"SET", key, v.text},
			{"SET", key, v.text + any("?", " ", " x"), "KEEPTTL"},
			{
				"SET", key, any("h2 7 ", "h2 "+number+" ") + any("15000 ", number+" ") +
					"owner0 1 {}",
				"PX", "90000000",
			},
			{"SET", key, fmt.Sprintf("h2 %d 15000 owner%d %s {}", 9007199254740988+r.Int64N(3),
				r.IntN(6), number), "PX", "90000000"},
			{"SET", key, any("h2 5 0 owner0 0 "+number, "h2 5 2 owner0 1 0 ",
				"h2 5 1 hold0 12 "+number+" ; "), "PX", "90000000"},
		}[r.IntN(5)]
	}
	field := v.order[r.IntN(len(v.order))]
	if r.IntN(3) == 0 {
		field = any("v", "o", "x", "f", "z", "g", "b", "k:1", "k:2", "q:1", "q:2")
	}
	if r.IntN(4) == 0 {
		return []string{"HDEL", key, field}
	}
	now := s.now().UnixMilli()
	value := any(number, number, v.fields[field]+"?", fmt.Sprintf("%d", r.IntN(9)))
	switch {
	case field == "g" && r.IntN(2) == 0:
		value = fmt.Sprintf("%s %d %d %d 0 0 %d %d %d %d %d", any("-", "s", "p", "r"), r.IntN(4),
			r.IntN(4), now, now+90000000,
			1+r.IntN(3), r.IntN(5), r.IntN(4), r.IntN(2))
	case field == "z" && r.IntN(2) == 0:
		value = any("1 a;2 b;", number+" a;", "9007199254740990 owner1;9007199254740990 owner2;")
	case field == "v":
		value = any("h3", "", "h2")
	}
	return []string{"HSET", key, field, value}
}
