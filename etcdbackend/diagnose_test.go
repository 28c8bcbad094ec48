package etcdbackend

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// covers: X7
func TestOutdated(t *testing.T) {
	for version, want := range map[string]bool{
		"3.3.27": true, "3.4.0": true, "3.4.23": true, "3.4.41": true, "3.4.42": false,
		"3.4.50": false,
		"3.5.0":  true, "3.5.27": true, "3.5.28": false, "3.6.0-rc.1": true, "3.6.8": true,
		"3.6.9": false, "3.6.10": false,
		"3.7.0": false, "3.10.1": false, "4.0.0": false, "": false, "not decided": false,
	} {
		if got := outdated(version); got != want {
			t.Errorf("outdated(%q) = %v", version, got)
		}
	}
}

// Of several members whose users get simple tokens it is said that JWTs are better.
func TestDiagnoseUsers(t *testing.T) {
	for name, c := range map[string]struct {
		members     int
		token, says string
		level       backend.Level
	}{
		"no users":                    {1, "", "off: whoever", backend.OK},
		"simple tokens of one member": {1, "simple", "are simple ones", backend.OK},
		"simple tokens of three":      {3, "simple", "each member has to hear", backend.Warn},
		"JWTs of three":               {3, "jwt", "are JWTs", backend.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := testserver.EtcdCluster(t, c.members, testserver.WithEtcdAuth(c.token))
			all, err := opened(t, as(set)).Diagnose(t.Context())
			want(t, "Diagnose", err, nil)
			i := slices.IndexFunc(all, func(f backend.Finding) bool { return f.Check == "auth" })
			if i < 0 || all[i].Level != c.level || !strings.Contains(all[i].Text, c.says) ||
				(all[i].Change != "") != (c.level != backend.OK) {
				t.Errorf("it finds %+v, want %q", all, c.says)
			}
		})
	}
	set := testserver.Etcd(t, testserver.WithEtcdAuth("jwt"))
	if text, _ := on(t, client(t, set.Addr()), Config{}).users(t.Context(),
		3); !strings.HasPrefix(text, "users are known") || strings.Contains(text, "token") {
		t.Errorf("to one who has no password: %q", text) // may have a certificate
	}
	in := opened(t, "etcd://"+set.Userinfo()+set.Addr())
	want(t, "disable", set.Post("/v3/auth/disable", struct{}{}, nil), nil)
	if text, _ := in.users(t.Context(), 1); !strings.HasPrefix(text, "off") {
		t.Errorf("to a user where there are none any more: %s", text)
	}
}
