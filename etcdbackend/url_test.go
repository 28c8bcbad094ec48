package etcdbackend

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// parse takes the URL as backend.Open does.
func parse(t *testing.T, raw string) (target, error) {
	t.Helper()
	u, err := backend.ParseURL(raw)
	if err != nil {
		return target{}, err
	}
	return parseURL(u)
}

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]target{
		"etcd://h": {endpoints: []string{"http://h:2379"}},
		"etcd://h1:1,h2,[::1]:7/": {endpoints: []string{
			"http://h1:1", "http://h2:2379",
			"http://[::1]:7",
		}},
		"etcd://h/app": {
			endpoints: []string{"http://h:2379"},
			cfg:       Config{Prefix: "app/"},
		},
		"etcd://h/app%20x/": {
			endpoints: []string{"http://h:2379"},
			cfg:       Config{Prefix: "app x/"},
		},
		"etcd://ann:p%40ss@h": {
			endpoints: []string{"http://h:2379"}, user: "ann",
			password: "p@ss",
		},
		"etcd://h?layout=etcdctl": {
			endpoints: []string{"http://h:2379"},
			cfg:       Config{Layout: Etcdctl},
		},
		"etcds://h?server_name=db": {endpoints: []string{"https://h:2379"}},
		"etcd://h?dial_timeout=1s&request_timeout=150ms": {
			endpoints: []string{"http://h:2379"}, dialTimeout: time.Second,
			cfg: Config{RequestTimeout: 150 * time.Millisecond},
		},
	} {
		got, err := parse(t, raw)
		if want.dialTimeout == 0 {
			want.dialTimeout = DefaultDialTimeout
		}
		if secure := strings.HasPrefix(raw, "etcds"); err != nil || (got.tls != nil) != secure {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
		got.tls = nil
		if strings.Join(got.endpoints, " ") != strings.Join(want.endpoints, " ") ||
			got.user != want.user ||
			got.password != want.password || got.dialTimeout != want.dialTimeout ||
			got.cfg != want.cfg {
			t.Errorf("%s:\n got %+v\nwant %+v", raw, got, want)
		}
	}
}

// covers: I10
func TestParseURLRefuses(t *testing.T) {
	for raw, why := range map[string]string{
		"etcd://":                         "empty host",
		"etcd://h,":                       "empty host",
		"etcd://:2379":                    "host:port",
		"etcd://h:0":                      "host:port",
		"etcd://::1":                      "port that is not a number",
		"etcd://h#x":                      "fragment",
		"etcd://ann@h":                    "without a password",
		"etcd://:secret@h":                "without a user",
		"etcd://h?ttl=3s":                 "not a known query parameter",
		"etcd://h?layout=redis":           "neither native nor etcdctl",
		"etcd://h?layout=native&layout=x": "more than once",
		"etcd://h?request_timeout=3":      "not a duration",
		"etcd://h?dial_timeout=-1s":       "not a duration",
		"etcd://h?request_timeout=1us":    "below 1ms",
		"etcd://h?ca=x":                   "needs the etcds scheme",
		"etcd://h/holdfast-side":          "kept by the layout",
		"etcds://h?ca=/no/such/file":      "cannot be read",
		"etcds://h?cert=/no/such/file":    "cert without a key",
		"etcds://h?cert=a&key=b":          "cannot be loaded",
	} {
		_, err := parse(t, raw)
		var invalid *backend.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want an *InvalidError about %q", raw, err, why)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the password: %v", raw, err)
		}
	}
	if _, err := parse(t, "etcds://h?ca="+emptyFile(t)); err == nil ||
		!strings.Contains(err.Error(), "PEM") {
		t.Errorf("a CA file without a certificate: %v", err)
	}
}

// TestUnknownParameter names those that there are, each of which is one.
func TestUnknownParameter(t *testing.T) {
	for raw, known := range map[string]string{
		"etcd://h":  "dial_timeout, layout, request_timeout",
		"etcds://h": "ca, cert, dial_timeout, key, layout, request_timeout, server_name",
	} {
		_, err := parse(t, raw+"?nosuch=1")
		if want := "\"nosuch\": is not a known query parameter (known: " + known +
			")"; !errors.Is(err, backend.ErrInvalid) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
		for name := range strings.SplitSeq(known, ", ") {
			if _, err := parse(t, raw+"?"+name+"="); err != nil &&
				!strings.Contains(err.Error(), "is not a duration") && name != "layout" {
				t.Errorf("%s of %s: %v", name, raw, err)
			}
		}
	}
}

func emptyFile(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestNewRefuses(t *testing.T) {
	_, err := New(nil, Config{})
	want(t, "no client", err, backend.ErrInvalid)
	c := client(t, "127.0.0.1:1")
	for _, cfg := range []Config{
		{Layout: "x"},
		{RequestTimeout: -1},
		{Prefix: sideRoot},
		{Prefix: strings.Repeat("p", 2000)},
	} {
		_, err := New(c, cfg)
		want(t, "bad Config", err, backend.ErrInvalid)
	}
	b := on(t, c, Config{Layout: Etcdctl})
	_, err = b.TryAcquire(t.Context(), claim("holdfast-side/x"))
	want(t, "a name among the side keys", err, backend.ErrInvalid)
}

// covers: I10, X15
func TestTLSAndUsers(t *testing.T) {
	srv := testserver.Etcd(t, testserver.WithTLS())
	admin, err := clientv3.New(clientv3.Config{
		Endpoints: []string{srv.URL()}, TLS: srv.TLS.Config,
		DialTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx := t.Context()
	_, err = admin.RoleAdd(ctx, "locks")
	want(t, "role", err, nil)
	_, err = admin.RoleGrantPermission(ctx, "locks", "holdfast/", "holdfast0",
		clientv3.PermissionType(clientv3.PermReadWrite))
	want(t, "permission", err, nil)
	for _, user := range []string{"root", "app"} {
		_, err = admin.UserAdd(ctx, user, "s3cret-"+user)
		want(t, "user", err, nil)
	}
	_, err = admin.UserGrantRole(ctx, "root", "root")
	want(t, "role of root", err, nil)
	_, err = admin.UserGrantRole(ctx, "app", "locks")
	want(t, "role of app", err, nil)
	_, err = admin.AuthEnable(ctx)
	want(t, "enable", err, nil)

	tail := "@" + srv.Addr() + "?ca=" + srv.TLS.CAFile
	b := opened(t, "etcds://app:s3cret-app"+tail)
	c := claim(key(t))
	acquired(t, b, c)
	want(t, "renew", b.Renew(ctx, c), nil)
	want(t, "release", storetest.Release(ctx, b, c), nil)
	_, err = b.Identity(ctx) // of a user with no more than the prefix
	want(t, "identity", err, nil)

	for what, raw := range map[string]string{
		"wrong password": "etcds://app:s3cret-wrong" + tail,
		"no user":        "etcds://" + tail[1:],
		"other prefix":   "etcds://app:s3cret-app@" + srv.Addr() + "/else?ca=" + srv.TLS.CAFile,
	} {
		_, err := backend.Open(ctx, raw)
		want(t, what, err, backend.ErrDenied)
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error has the password: %v", what, err)
		}
	}
	other := on(t, client(t, "http://"+srv.Addr()), Config{RequestTimeout: 300 * time.Millisecond})
	_, err = other.TryAcquire(ctx, claim(key(t)))
	if backend.AnswerOf(err) == backend.Yes || backend.Refused(err) {
		t.Errorf("without TLS: %v", err)
	}
}

// TestBadCertificate: the error is that of the certificate, with a user and without, and within
// whatever time.
func TestBadCertificate(t *testing.T) {
	srv := testserver.Etcd(t, testserver.WithTLS())
	const unknown = "x509: certificate signed by unknown authority"
	ca := "?request_timeout=2s&ca=" + srv.TLS.CAFile
	for raw, why := range map[string]string{
		"etcds://" + srv.Addr() + "?request_timeout=2s":                          unknown,
		"etcds://u:s3cret@" + srv.Addr() + "?dial_timeout=2s":                    unknown,
		"etcds://127.0.0.1:1," + srv.Addr() + "?request_timeout=2s":              unknown,
		"etcds://localhost:" + strings.TrimPrefix(srv.Addr(), "127.0.0.1:") + ca: "localhost",
		"etcds://" + srv.Addr() + ca + "&server_name=db.internal":                "db.internal",
		"etcds://" + refusing(t, srv.TLS) +
			ca: "certificate required",
		"etcds://" + testserver.Etcd(t).Addr() + "?request_timeout=2s": "EOF",
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			_, err := backend.Open(t.Context(), raw)
			want(t, raw, err, backend.ErrUnavailable)
			if !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %v, want %s", raw, err, why)
			}
			_, err = backend.Open(quick(t, 1500*time.Millisecond), raw)
			if !strings.Contains(raw, "s3cret") { // the log-in gives up a little earlier
				want(t, raw, err, context.DeadlineExceeded)
			}
			if !strings.Contains(err.Error(), why) {
				t.Errorf("%s, with little time: %v, want %s", raw, err, why)
			}
		})
	}
	opened(t, "etcds://localhost:"+strings.TrimPrefix(srv.Addr(), "127.0.0.1:")+ca+
		"&server_name=127.0.0.1")
}

// refusing is a server that wants client certificates, and has none to its taste.
func refusing(t *testing.T, certs *testserver.TLS) string {
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: certs.Config.Certificates, ClientAuth: tls.RequireAnyClientCert,
		NextProtos: []string{"h2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			// What the client sent meanwhile is read, or the kernel would reset the connection, and
			// the alert with it.
			raw := conn.(*tls.Conn).NetConn().(*net.TCPConn) //nolint:forcetypeassert // it is one
			_ = raw.SetDeadline(time.Now().Add(patience))
			_ = raw.CloseWrite()
			_, _ = io.Copy(io.Discard, raw)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// covers: A5
func TestNobodyThere(t *testing.T) {
	start := time.Now()
	_, err := backend.Open(quick(t, 300*time.Millisecond), "etcd://127.0.0.1:1")
	if err == nil || time.Since(start) > patience/2 {
		t.Errorf("Open without a server = %v, after %v", err, time.Since(start))
	}
}
