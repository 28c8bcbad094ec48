package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A bench measures four ways, says so in text and JSON, and leaves no key.
func TestBench(t *testing.T) {
	srv, member := testserver.Redis(t, testserver.WithPassword(secret)), testserver.Etcd(t)
	for url, ways := range map[string]string{
		srv.URL(): "uncontended holdfast 1, uncontended SET NX 1, contended holdfast 3, " +
			"contended SET NX 3, ",
		"rueidis://:" + secret + "@" + srv.Addr() +
			"?held_answers=true": "uncontended holdfast 1, uncontended SET NX 1, contended " +
			"holdfast 3, contended SET NX 3, ",
		etcdURL(member): "uncontended holdfast 1, uncontended bare txn 1, contended holdfast 3, " +
			"contended bare txn 3, ",
		"mem://": "uncontended holdfast 1, contended holdfast 3, ",
	} {
		o := holdfast(t, "bench", url, "--duration=300ms", "--clients=3", "-o", "json").want(t, 0)
		got := ""
		for line := range strings.Lines(o.out) {
			var f struct {
				Load, Lock string
				Clients    int
				Rate       float64 `json:"pairs_per_s"`
				P50        float64 `json:"p50_us"`
				P99        float64 `json:"p99_us"`
			}
			if err := json.Unmarshal([]byte(line), &f); err != nil || f.Rate <= 0 || f.P50 <= 0 ||
				f.P99 < f.P50 {
				t.Errorf("%v: %s", err, line)
			}
			got += fmt.Sprintf("%s %s %d, ", f.Load, f.Lock, f.Clients)
		}
		if got != ways || o.err != "" || strings.Contains(o.out, secret) {
			t.Errorf("%s measured %s and said %s", url, got, o.err)
		}
	}
	if keys := srv.MustDo("KEYS", "*bench*"); keys != "[]" {
		t.Errorf("left behind: %s", keys)
	}
	var left struct{ Kvs []struct{ Key []byte } }
	if err := member.Post("/v3/kv/range", map[string][]byte{
		"key":       []byte("holdfast/"),
		"range_end": []byte("holdfast0"),
	}, &left); err != nil {
		t.Fatal(err)
	}
	for _, kv := range left.Kvs { // tombstones of waits that were withdrawn run out by themselves
		if key := string(kv.Key); strings.Contains(key, "bench") && !strings.Contains(key, "/t/") {
			t.Errorf("left behind: %s", key)
		}
	}
	o := holdfast(t, "bench", srv.URL(), "--duration=100ms").want(t, 0)
	if lines := strings.Split(o.out, "\n"); len(lines) != 7 ||
		!strings.Contains(lines[1], "pairs/s") || strings.Contains(o.out, secret) {
		t.Error(o.out)
	}
	for args, status := range map[string]int{
		"bench mem:// --duration=1ms": 2,
		"bench mem:// --clients=1":    2, "bench": 2, "bench redis://127.0.0.1:1": 77,
	} {
		holdfast(t, strings.Fields(args)...).want(t, status)
	}
}
