package record_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

func at(seconds int64) time.Time { return time.Unix(1_800_000_000+seconds, 123) }

// vectors are records whose values are in testdata/golden.txt, for ever: a later version has to
// read them.
func vectors() []struct {
	name string
	r    record.Record
} {
	meta := backend.Meta{
		Service: "shop", Host: "h1", PID: 7, Traceparent: "00-11-22-01",
		Since: at(-1), Note: "n", Waits: "w", Quorum: "q",
	}
	free := record.Record{
		Token: 1_800_000_000_000_000, Lapsed: 5, Mark: at(60),
		Saved: []byte("state"), Tombs: map[string]time.Time{
			"b": at(9), "a\x00\xff": at(8),
		},
	}
	ran := record.Record{
		Token: 9, Mark: at(57), Ran: &record.Run{
			Token: 8, Began: at(-3), Every: time.Minute,
			Kept: at(90),
		}, Tombs: map[string]time.Time{"b": at(9)},
	}
	held := record.Record{Token: 12, Saved: []byte{}, Holds: []record.Hold{
		{
			ID: "o\xfe", Owner: "o\xfe", Token: 10, Reserved: 3, Expires: at(30), Meta: meta,
			TookOver: 4,
		},
	}, Queue: []record.Place{{Until: at(5), Claim: backend.Claim{
		Key: "k", Owner: "w", Queue: true, TTL: time.Minute, WaiterTTL: 5 * time.Second,
		Reserve: 16, MinToken: 99, Load: true, Meta: meta,
	}}, {Until: at(6), Claim: backend.Claim{
		Key: "k", Owner: "r", Hold: "r1", Reentrant: true, Queue: true, TTL: time.Minute,
		WaiterTTL: 5 * time.Second,
	}}}}
	handed := record.Record{Token: 3, Saved: []byte("s"), Holds: []record.Hold{
		{
			ID: "p1", Owner: "p1", Mode: backend.Permit, Limit: 9, Weight: 2, Token: 2, Reserved: 1,
			Expires: at(30),
		},
		{
			ID: "p2", Owner: "p2", Mode: backend.Permit, Limit: 9, Token: 3, Reserved: 1,
			Expires: at(10), Handed: &backend.Grant{
				Token: 3, Reserved: 1, TTL: 10 * time.Second, State: []byte("s"),
				Before: []backend.Past{{Meta: meta, Token: 1, For: time.Second}},
			},
		},
	}}
	reentrant := record.Record{Token: 3, Holds: []record.Hold{
		{ID: "r1", Owner: "r", Reentrant: true, Token: 3, Reserved: 1, Expires: at(30)},
		{ID: "r2", Owner: "r", Reentrant: true, Token: 3, Reserved: 1, Expires: at(40)},
	}}
	return []struct {
		name string
		r    record.Record
	}{
		{"zero", record.Record{}},
		{"free", free},
		{"held", held},
		{"handed", handed},
		{"reentrant", reentrant},
		{"ran", ran},
	}
}

// covers: R24
func TestGolden(t *testing.T) {
	const path = "testdata/golden.txt"
	var got strings.Builder
	for _, v := range vectors() {
		value := v.r.Encode("k")
		got.WriteString(v.name + " " + hex.EncodeToString(value) + "\n")
		back, err := record.Decode("k", value)
		if err != nil || !reflect.DeepEqual(*back, v.r) {
			t.Errorf("%s comes back as %+v, %v; want %+v", v.name, back, err, v.r)
		}
	}
	want, err := os.ReadFile(path)
	if os.Getenv("HOLDFAST_GOLDEN") != "" {
		want, err = []byte(got.String()), os.WriteFile(path, []byte(got.String()), 0o600)
	}
	if err != nil || got.String() != string(want) {
		t.Errorf("%v; %s has\n%s, and it is now\n%s", err, path, want, got.String())
	}
}

// What is no record of ours, or none that this version can rely on, is foreign, and never a free
// lock.
//
// covers: R24
func TestForeign(t *testing.T) {
	r := vectors()[2].r
	value := r.Encode("k")
	newer := bytes.Clone(value[:len(value)-4])
	newer[3] = '2'
	newer = withSum(newer)
	cases := map[string][]byte{
		"another program's": []byte("some text of theirs"), "short": value[:5],
		"a newer version": newer, "cut off": value[:len(value)-1],
		"with something behind": append(bytes.Clone(value), 0),
	}
	for i := range value {
		changed := bytes.Clone(value)
		changed[i] ^= 1
		cases["bit of byte "+string(rune('0'+i%10))+hex.EncodeToString([]byte{byte(i)})] = changed
	}
	for name, value := range cases {
		if r, err := record.Decode("k", value); !errors.Is(err, backend.ErrForeign) || r != nil {
			t.Errorf("%s: %+v, %v; want ErrForeign", name, r, err)
		}
	}
	if _, err := record.Decode("another", value); !errors.Is(err, backend.ErrForeign) {
		t.Errorf("the value of another key: %v; want ErrForeign", err)
	}
	for _, none := range [][]byte{nil, {}} {
		if r, err := record.Decode("k", none); err != nil || !r.Trim(at(0)) || r.Token != 0 {
			t.Errorf("no value is %+v, %v", r, err)
		}
	}
}

// withSum is a value of "k" whose checksum is right.
func withSum(body []byte) []byte {
	sum := crc32.Checksum(append([]byte("k"), body...), crc32.MakeTable(crc32.Castagnoli))
	return binary.BigEndian.AppendUint32(bytes.Clone(body), sum)
}

// FuzzDecode: whatever is in a value, reading it ends, and what was read is written and read as the
// same.
func FuzzDecode(f *testing.F) {
	for _, v := range vectors() {
		f.Add(v.r.Encode("k"))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if len(value) > 4 { // else nothing gets past the checksum
			value = withSum(value[:len(value)-4])
		}
		r, err := record.Decode("k", value)
		if err != nil {
			if !errors.Is(err, backend.ErrForeign) {
				t.Fatalf("%v, want ErrForeign", err)
			}
			return
		}
		again, err := record.Decode("k", r.Encode("k"))
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v comes back as %+v, %v", r, again, err)
		}
		c := backend.Claim{
			Key: "k", Owner: "o", TTL: time.Minute, Queue: true,
			WaiterTTL: time.Minute,
		}
		_, _ = r.Acquire(c, at(0))
		_, _ = r.Release(c, at(0))
		_ = r.Inspect(at(0))
	})
}
