package filebackend_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/backend/filebackend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) {
	backendtest.Main()
	childMain()
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, dir string) backend.Backend {
	t.Helper()
	b, err := backend.Open(t.Context(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// harness is the suite's on one folder, in which every client is opened by open.
func harness(dir string, open func(t testing.TB) backend.Backend) backendtest.Harness {
	return backendtest.Harness{
		Open: open,
		PutForeign: func(t testing.TB, key string) (intact func() bool) {
			path := filebackend.RecordOf(dir, key)
			if err := os.WriteFile(path, []byte("of another program"), 0o600); err != nil {
				t.Fatal(err)
			}
			return func() bool {
				content, err := os.ReadFile(path)
				return err == nil && string(content) == "of another program"
			}
		},
		Drop: func(t testing.TB, key string) {
			if err := os.Remove(filebackend.RecordOf(dir, key)); err != nil &&
				!errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	backendtest.Run(t, harness(dir, func(t testing.TB) backend.Backend { return open(t, dir) }))
}

// TestConformanceAlone runs the suite with clients that have nothing in common but the files, as
// those of different processes.
func TestConformanceAlone(t *testing.T) {
	testserver.OnlyInAll(t, "the same suite with clients that share nothing")
	t.Parallel()
	dir := folder(t)
	h := harness(dir, func(t testing.TB) backend.Backend {
		b, err := filebackend.OpenAlone(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return &visible{b}
	})
	h.Brief = true
	backendtest.Run(t, h)
}

// visible has the race detector see that a release comes before the next grant. It does not see the
// kernel's locks, nor that a file was deleted.
type visible struct{ *filebackend.Backend }

var released atomic.Int64

func (v *visible) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	released.Add(1)
	return v.Backend.Release(ctx, c)
}

func (v *visible) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	released.Add(1)
	return v.Backend.ReleaseAll(ctx, claims)
}

func (v *visible) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	g, err := v.Backend.TryAcquire(ctx, c)
	released.Load()
	return g, err
}
