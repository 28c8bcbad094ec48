package filebackend_test

import (
	"testing"
)

// BenchmarkPair is a free lock, taken and released.
func BenchmarkPair(b *testing.B) {
	f := open(b, folder(b))
	defer f.Close()
	for b.Loop() {
		c := claim("k")
		if _, err := f.TryAcquire(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		if _, err := f.Release(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}
