package testserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A cluster with users asks for them, and can be asked for its leader all the same, restarted, and
// given a new member.
func TestEtcdKnowsUsers(t *testing.T) {
	t.Parallel()
	if testserver.Etcd(t).Userinfo() != "" {
		t.Error("a user without users")
	}
	for _, token := range []string{"simple", "jwt"} {
		t.Run(token, func(t *testing.T) {
			t.Parallel()
			set := testserver.EtcdCluster(t, 3, testserver.WithEtcdAuth(token))
			if user, password, ok := strings.Cut(strings.TrimSuffix(set.Userinfo(), "@"),
				":"); !ok || user == "" || password == "" {
				t.Errorf("Userinfo = %q", set.Userinfo())
			}
			leader, follower := set.Leader(t)
			if leader == follower {
				t.Error("a leader that follows")
			}
			reply, err := http.Post(follower.URL()+"/v3/kv/range", "application/json",
				strings.NewReader(`{"key":"AA=="}`))
			if err != nil {
				t.Fatal(err)
			}
			if _ = reply.Body.Close(); reply.StatusCode == http.StatusOK {
				t.Error("an answer without a user")
			}
			leader.Kill()
			next, _ := set.Leader(t)
			if next == leader {
				t.Error("a dead leader")
			}
			leader.Restart()
			_, follower = set.Leader(t)
			set.Rejoin(t, follower)
		})
	}
	if text := failing(t, func(t testing.TB) {
		testserver.Etcd(t, testserver.WithEtcdAuth("none"))
	}); !strings.Contains(text, `no kind of token: "none"`) {
		t.Errorf("failed with %q", text)
	}
}
