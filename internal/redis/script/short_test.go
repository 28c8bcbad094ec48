package script

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/smallredis"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// shorts says what each string is: no lock of ours, free (without an id) or held.
var shorts = map[string]struct {
	is bool
	short
}{
	"h2 1700000000000000":  {true, short{counter: 1_700_000_000_000_000}},
	"h2 0":                 {true, short{}},
	"h2 007":               {true, short{counter: 7}},
	"h2 9007199254740990":  {true, short{counter: 1<<53 - 2}},
	"h2 9007199254740991":  {},
	"h2 99999999999999999": {},
	"h2 00000000000000001": {},
	"h2 1700000000000000 15000 me 1 ": {
		true,
		short{1_700_000_000_000_000, 15000, "me", "1", ""},
	},
	"h2 1700000000000000 15000 me 1  ": {
		true,
		short{1_700_000_000_000_000, 15000, "me", "1", " "},
	},
	`h2 1700000000000000 15000 a%20b 12 {"a":1} `: {
		true,
		short{1_700_000_000_000_000, 15000, "a%20b", "12", `{"a":1} `},
	},
	"h2 5 0 \xff;\n 1 a b c":          {true, short{5, 0, "\xff;\n", "1", "a b c"}},
	"h2 5 7 me 99999999999999999999 ": {true, short{5, 7, "me", "99999999999999999999", ""}},
	"h2 5 7 me 1":                     {},
	"h2 5 7 me x ":                    {},
	"h2 5 7 me -1 ":                   {},
	"h2 5 7 me  ":                     {},
	"h2 5 7  1 ":                      {},
	"h2 5 x me 1 ":                    {},
	"h2 5 -7 me 1 ":                   {},
	"h2 5 99999999999999999 me 1 ":    {},
	"h2 x 7 me 1 ":                    {},
	"h2 5 7 me":                       {},
	"h2 5 ":                           {},
	"h2 +5":                           {},
	"h2 5_0":                          {},
	"h2 0x5":                          {},
	"h2 1e3":                          {},
	"h2 5\n":                          {},
	"h2  5":                           {},
	"h2 ":                             {},
	"h2":                              {},
	"":                                {},
	"h3 5":                            {},
	" h2 5":                           {},
	"H2 5":                            {},
	"a session of some web shop":      {},
}

// What lib/short.lua makes of a string, and prints of what it has read; and if the counter has as
// many digits as those of today, as ACQUIRE prints it and RELEASE cuts and compares it.
var shortInLua = newScript(`
-- uses: lib/clock lib/short
local counter, margin, id, count, meta = string.match(ARGV[1], IS_HELD)
counter = int(counter or string.match(ARGV[1], IS_FREE))
if not counter or (margin and not int(margin)) then return {'no'} end
local bare = H2 .. text(counter)
local recent = string.format(RECENT, counter / 1000000, counter % 1000000)
local owned = ' ' .. (margin or '') .. ' ' .. (id or '') .. ' '
if margin then
  local its, who = string.match(ARGV[1], HELD_BY)
  if its ~= margin or who ~= id then return {'HELD_BY is another'} end
elseif string.find(ARGV[1], HELD_BY) then
  return {'HELD_BY of a free one'}
end
return {'yes', text(counter), margin and text(int(margin)) or '0', id or '', count or '',
  meta or '', bare, recent, string.sub(ARGV[1], 1, BARE),
  string.find(ARGV[1], owned, BARE + 1, true) == BARE + 1 and 'same' or 'other'}
`)

// Scripts and clients read the short string alike, and print what they have read as it was.
func TestShort(t *testing.T) {
	srv := testserver.SharedRedis(t)
	small := smallredis.New(time.Now, strings.Repeat("a", 40))
	for value, want := range shorts {
		got, ok := parseShort(value)
		if ok != want.is || ok && got != want.short {
			t.Errorf("%q: %+v, %v in Go, want %+v, %v", value, got, ok, want.short, want.is)
		}
		canonical := value == strings.Replace(value, "h2 0", "h2 ", 1) || value == "h2 0"
		told := []any{"no"}
		if want.is {
			s, n := want.short, uint64(want.counter)
			bare, compared := Free(n), "other"
			if s.id != "" && len(bare) == 19 {
				compared = "same"
			}
			told = []any{
				"yes", strconv.FormatInt(s.counter, 10), strconv.FormatInt(s.margin, 10), s.id,
				s.count, s.meta, bare,
				fmt.Sprintf("h2 %d%06d", n/1e6, n%1e6), value[:min(19, len(value))], compared,
			}
			if tail := fmt.Sprintf("%d %s %s %s", s.margin, s.id, s.count, s.meta); s.id != "" &&
				Held(n, tail) != value {
				t.Errorf("%q is printed as %q", value, Held(n, tail))
			} else if s.id == "" && canonical && Free(n) != value {
				t.Errorf("%q is printed as %q", value, Free(n))
			}
			if recent := told[7]; len(bare) == 19 && recent != bare {
				t.Errorf("%q is printed as %q and %q", value, bare, recent)
			}
		}
		real, err := srv.Do("EVAL", shortInLua.Source(), "0", value)
		if err != nil || !reflect.DeepEqual(real, told) {
			t.Errorf("%q: %q, %v on a server, want %q", value, real, err, told)
		}
		reply, err := small.Eval(shortInLua.Source(), nil, []string{value})
		if err != nil || !reflect.DeepEqual(reply, told) {
			t.Errorf("%q: %q, %v on a small one, want %q", value, reply, err, told)
		}
	}
}
