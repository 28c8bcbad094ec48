package redistest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Refusals has the server refuse what a script does, in the words of its version. Each is a
// definite answer, so that a release is not repeated for a whole timeout, and shows no user name.
//
// covers: R6, R14, R20
func Refusals(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	url := SetUser(t, srv, scheme, Permissions(t)...)
	for name, refusal := range map[string]struct {
		begin, end []string
		want       error
	}{
		"denied": {
			[]string{"ACL", "SETUSER", "app", "-get", "-hmget"},
			[]string{"ACL", "SETUSER", "app", "+get", "+hmget"},
			backend.ErrDenied,
		},
		"memory": {
			[]string{"CONFIG", "SET", "maxmemory", "1"},
			[]string{"CONFIG", "SET", "maxmemory", "0"},
			backend.ErrUnavailable,
		},
		"replica": {
			[]string{"REPLICAOF", "127.0.0.1", "1"},
			[]string{"REPLICAOF", "NO", "ONE"},
			backend.ErrUnavailable,
		},
	} {
		b := Dial(t, url)
		c := storetest.Claim(storetest.Key(t))
		storetest.Acquired(t, b, c)
		srv.MustDo(refusal.begin...)
		_, acquire := b.TryAcquire(t.Context(), storetest.Claim(storetest.Key(t)))
		errs := []error{acquire}
		if name != "memory" { // a release is taken all the same
			_, err := b.Release(t.Context(), c)
			// A client that leaves a replica closes the connection, maybe under this request.
			for range 10 {
				if backend.AnswerOf(err) != backend.Unknown {
					break
				}
				_, err = b.Release(t.Context(), c)
			}
			errs = append(errs, err)
		}
		srv.MustDo(refusal.end...)
		for i, err := range errs {
			if !errors.Is(err, refusal.want) || strings.Contains(fmt.Sprint(err), "app") {
				t.Errorf("%s: %d: %v, want %v and no user", name, i, err, refusal.want)
			}
		}
		storetest.Eventually(t, "release", func() error {
			return storetest.Release(t.Context(), b, c)
		})
		storetest.Want(t, "close", b.Close(), nil)
	}
}
