package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two instances serve, and a request that comes while another is served for the same order is
// refused, with a time to come back at.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		t.Cleanup(func() { b.Close() })
		var instances []http.Handler
		for range 2 {
			c, err := locker.New(b, locker.Bare, locker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			instances = append(instances, OneAtATime(c, func(r *http.Request) string {
				return r.FormValue("order")
			},
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(10 * time.Second)
					hold, ok := locker.HoldFrom(r.Context())
					fmt.Fprint(w, hold.Key, ok, r.Context().Err())
				})))
		}
		get := func(instance int, order string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			instances[instance].ServeHTTP(w,
				httptest.NewRequest(http.MethodPost, "/?order="+order, http.NoBody))
			return w
		}

		if w := get(0, "7"); w.Code != http.StatusOK || w.Body.String() != "7true <nil>" {
			t.Errorf("alone: %d %q", w.Code, w.Body)
		}
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- get(0, "7") }()
		synctest.Wait()
		if w := get(0, "7"); w.Code != http.StatusConflict || w.Header().Get("Retry-After") == "" {
			t.Errorf("beside one at the same instance: %d %v", w.Code, w.Header())
		}
		if w := get(1, "7"); w.Code != http.StatusConflict {
			t.Errorf("beside one at another instance: %d", w.Code)
		}
		if w := get(1, "8"); w.Code != http.StatusOK {
			t.Errorf("another order: %d", w.Code)
		}
		if w := get(1, ""); w.Code != http.StatusOK || w.Body.String() != "false <nil>" {
			t.Errorf("no order: %d %q", w.Code, w.Body)
		}
		if w := <-first; w.Code != http.StatusOK {
			t.Errorf("the one before: %d", w.Code)
		}
	})
}
