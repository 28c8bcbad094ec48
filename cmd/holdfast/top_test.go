package main_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	_ "github.com/holdfast-go/holdfast/redisbackend"
)

// crowd has n keys of a store held, and one wait for each.
func crowd(b *testing.B, url string, n int) {
	b.Helper()
	s, err := backend.Open(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range n {
		c := backend.Claim{
			Key: "key-" + strconv.Itoa(i), Owner: backend.NewOwner(), TTL: time.Hour,
			NoneInFlight: true,
		}
		if _, err := s.TryAcquire(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		c.Owner, c.Queue, c.WaiterTTL = backend.NewOwner(), true, time.Hour
		if _, err := s.TryAcquire(b.Context(), c); backend.AnswerOf(err) != backend.No {
			b.Fatal(err)
		}
	}
}

// BenchmarkTop is a look of top at 5,000 keys and 5,000 waiters, and what it costs the server.
func BenchmarkTop(b *testing.B) {
	srv := testserver.Redis(b)
	crowd(b, srv.URL(), 5000)
	info := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer info.Close()
	busy := func() (sum float64) {
		text, err := info.Info(b.Context(), "cpu").Result()
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if seconds, err := strconv.ParseFloat(value, 64); err == nil &&
				(name == "used_cpu_sys" || name == "used_cpu_user") {
				sum += seconds
			}
		}
		return sum
	}
	cmd := command(b, b.TempDir(), "top", "-o", "json", "--interval", "100ms", "--backend",
		srv.URL())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	frames, took := json.NewDecoder(out), time.Duration(0)
	look := func() {
		var f struct {
			Time                 time.Time
			Keys, Holds, Waiters int
		}
		if err := frames.Decode(&f); err != nil || f.Keys != 5000 || f.Holds != 5000 ||
			f.Waiters != 5000 {
			b.Fatalf("%+v, %v", f, err)
		}
		took += time.Since(f.Time)
	}
	look() // which loads the scripts
	before := busy()
	took = 0
	for b.Loop() {
		look()
	}
	b.ReportMetric((busy()-before)*1000/float64(b.N), "server-ms/look")
	b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "ms/look")
}
