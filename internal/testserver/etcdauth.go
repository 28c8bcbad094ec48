package testserver

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"path/filepath"
)

// The users of an etcd that knows any. Root is the one who may change the cluster.
const (
	etcdUser, etcdPassword = "app", "s3cret-app"
	etcdRoot, rootPassword = "root", "s3cret-root"
)

// tokenArgs are the arguments of members that hand out tokens of a kind. The keys of JWTs are files
// in dir.
func tokenArgs(kind, dir string) ([]string, error) {
	args := []string{"--bcrypt-cost", "4"} // the least: each log-in compares a password
	switch kind {
	case "simple":
		return append(args, "--auth-token", kind), nil
	case "jwt":
	default:
		return nil, fmt.Errorf("no kind of token: %q", kind)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	private, known := filepath.Join(dir, "jwt-key.pem"), filepath.Join(dir, "jwt-public.pem")
	if err := writePEM(private, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)); err != nil {
		return nil, err
	}
	if err := writePEM(known, "PUBLIC KEY", public); err != nil {
		return nil, err
	}
	return append(args, "--auth-token",
		"jwt,pub-key="+known+",priv-key="+private+",sign-method=RS256,ttl=10m"), nil
}

// enableAuth makes the users and has every member ask for them.
func (s *EtcdSet) enableAuth() error {
	type body = map[string]any
	all := base64.StdEncoding.EncodeToString([]byte{0}) // as key and end of a range: every key
	for _, step := range []struct {
		path    string
		request body
	}{
		{"user/add", body{"name": etcdRoot, "password": rootPassword}},
		{"user/add", body{"name": etcdUser, "password": etcdPassword}},
		{"role/add", body{"name": "locks"}},
		{"role/grant", body{
			"name": "locks",
			"perm": body{"permType": "READWRITE", "key": all, "range_end": all},
		}},
		{"user/grant", body{"user": etcdRoot, "role": "root"}},
		{"user/grant", body{"user": etcdUser, "role": "locks"}},
		{"enable", body{}},
	} {
		if err := s.Members[0].Post("/v3/auth/"+step.path, step.request, nil); err != nil {
			return err
		}
	}
	for _, m := range s.Members {
		m.users.Store(true)
	}
	return nil
}

// Userinfo is "user:password@" of a user of the member, or "": see [EtcdSet.Userinfo].
func (m *EtcdMember) Userinfo() string {
	if m.cfg.auth == "" {
		return ""
	}
	return etcdUser + ":" + etcdPassword + "@"
}

// login logs root in anew and keeps the token. It takes a majority.
func (m *EtcdMember) login() (token string, err error) {
	var reply struct{ Token string }
	err = m.post("/v3/auth/authenticate",
		map[string]string{"name": etcdRoot, "password": rootPassword}, &reply, "")
	m.token.Store(reply.Token)
	return reply.Token, err
}
