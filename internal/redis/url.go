package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Topology is how servers are found.
type Topology uint8

// The topologies.
const (
	Standalone Topology = iota
	Sentinel
	Cluster
)

// A Target is what a URL names.
type Target struct {
	Topology                       Topology
	Addrs                          []string
	User, Password                 string
	SentinelUser, SentinelPassword string
	Master                         string
	DB                             int
	TLS                            *tls.Config
	Config                         Config
}

// Settings are query parameters that only one of the backends has. A function returns an error for
// a value that it refuses.
type Settings map[string]func(value string) error

// Register makes all schemes known of a backend whose plain one is name.
func Register(name string, open func(context.Context, *url.URL) (backend.Backend, error)) {
	for _, kind := range []string{
		"", "s", "+sentinel", "s+sentinel", "+cluster", "s+cluster",
		"+unix",
	} {
		backend.Register(name+kind, open)
	}
}

// Secrets returns what must be in no error.
func (t Target) Secrets() []string { return []string{t.Password, t.SentinelPassword} }

// ParseURL reads a URL as the backends' package comments describe it. name is the backend's plain
// scheme. Errors are *[backend.InvalidError] and quote nothing that may be secret.
func ParseURL(u *url.URL, name string, own Settings) (Target, error) {
	var t Target
	kind := strings.TrimPrefix(u.Scheme, name)
	kind, secure := strings.CutPrefix(kind, "s")
	switch kind {
	case "+sentinel":
		t.Topology = Sentinel
	case "+cluster":
		t.Topology = Cluster
	}
	if u.Fragment != "" {
		return t, invalidOption("url", "",
			"has a #fragment; percent-encode special characters in user and password")
	}
	parts := []func(*url.URL) error{
		func(u *url.URL) error { return t.parseHosts(u, name) }, t.parseUser, t.parsePath,
	}
	unix := kind == "+unix"
	if unix {
		parts = []func(*url.URL) error{t.parseSocket, t.parseUser}
	}
	for _, part := range parts {
		if err := part(u); err != nil {
			return t, err
		}
	}
	query := u.Query()
	if unix {
		if err := t.parseSocketDB(query); err != nil {
			return t, err
		}
	}
	err := t.parseQuery(query, name, secure, own)
	return t, err
}

// parseSocket reads the path of a Unix socket.
func (t *Target) parseSocket(u *url.URL) error {
	if u.Host != "" || len(u.Path) < 2 || strings.HasSuffix(u.Path, "/") {
		return invalidOption("url", "",
			"must be "+u.Scheme+":///path/of/the/socket, with three slashes")
	}
	t.Addrs = []string{u.Path}
	return nil
}

// parseSocketDB takes the database out of the query, where the path is the socket's.
func (t *Target) parseSocketDB(q url.Values) error {
	values := q["db"]
	if len(values) == 0 {
		return nil
	}
	db, err := strconv.ParseUint(values[0], 10, 16)
	if err != nil || len(values) > 1 {
		return invalidOption("url", "db", "is not the number of a database")
	}
	t.DB = int(db)
	q.Del("db")
	return nil
}

func (t *Target) parseHosts(u *url.URL, scheme string) error {
	port := "6379"
	if t.Topology == Sentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		if host == "" {
			return invalidOption("url", u.Host, "has an empty host")
		}
		name, number, err := net.SplitHostPort(host)
		if err != nil { // no port, or an IPv6 address without one
			name, number = strings.Trim(host, "[]"), port
			if strings.Contains(name, ":") && !strings.HasPrefix(host, "[") {
				return invalidOption("url", host, "is not host:port")
			}
		}
		if number == "" {
			number = port
		}
		if n, err := strconv.ParseUint(number, 10, 16); err != nil || n == 0 || name == "" {
			// The host is not quoted: it may be a password that lacks its @.
			return invalidOption("url", "", "has a host that is not host:port")
		}
		t.Addrs = append(t.Addrs, net.JoinHostPort(name, number))
	}
	if t.Topology == Standalone && len(t.Addrs) > 1 {
		return invalidOption("url", u.Host, "names several hosts; say "+scheme+"+sentinel:// or "+
			scheme+"+cluster://")
	}
	return nil
}

func (t *Target) parseUser(u *url.URL) error {
	if u.User == nil {
		return nil
	}
	t.User = u.User.Username()
	t.Password, _ = u.User.Password()
	if t.User != "" && t.Password == "" {
		return invalidOption("url", "", "has a user without a password")
	}
	return nil
}

// parsePath reads /database, or /master/database for Sentinel.
func (t *Target) parsePath(u *url.URL) error {
	path := strings.TrimPrefix(u.Path, "/")
	if t.Topology == Sentinel {
		var ok bool
		if t.Master, path, ok = strings.Cut(path, "/"); t.Master == "" || ok && path == "" {
			return invalidOption("url", u.Path, "is not /master or /master/database")
		}
	}
	if path == "" {
		return nil
	}
	db, err := strconv.ParseUint(path, 10, 16)
	if err != nil {
		return invalidOption("url", u.Path, "does not end in the number of a database")
	}
	if t.Topology == Cluster && db != 0 {
		return invalidOption("url", u.Path, "names a database; a cluster has only 0")
	}
	t.DB = int(db)
	return nil
}

func (t *Target) parseQuery(q url.Values, scheme string, secure bool, own Settings) error {
	var ca, cert, key, serverName string
	texts := map[string]*string{"prefix": &t.Config.Prefix, "dialect": &t.Config.Dialect}
	if secure {
		texts["ca"], texts["cert"], texts["key"], texts["server_name"] = &ca, &cert, &key,
			&serverName
	}
	if t.Topology == Sentinel {
		texts["sentinel_username"], texts["sentinel_password"] = &t.SentinelUser,
			&t.SentinelPassword
	}
	for name, values := range q {
		if len(values) != 1 {
			return invalidOption("url", name, "is in the query more than once")
		}
		if text, ok := texts[name]; ok {
			*text = values[0]
		} else if err := t.setting(name, values[0], scheme, own); err != nil {
			if errors.Is(err, errUnknown) {
				err = invalidOption("url", name, "is not a known query parameter (known: "+
					strings.Join(t.known(texts, own), ", ")+")")
			}
			return err
		}
	}
	if t.SentinelUser != "" && t.SentinelPassword == "" {
		return invalidOption("url", "", "has a sentinel_username without a sentinel_password")
	}
	if err := t.parseGuard(); err != nil || !secure {
		return err
	}
	var err error
	t.TLS, err = tlsConfig(ca, cert, key, serverName)
	return err
}

// parseGuard knows what the guard needs here.
func (t *Target) parseGuard() error {
	if t.Topology == Cluster {
		return t.Config.RefuseCluster()
	}
	if t.Topology == Sentinel && t.Config.MaxTTL != 0 && t.Config.ReplicaLag == 0 {
		t.Config.ReplicaLag = DefaultReplicaLag
	}
	return nil
}

// known are the parameters that a URL of this scheme may have.
func (t *Target) known(texts map[string]*string, own Settings) []string {
	names := slices.Concat(slices.Collect(maps.Keys(texts)), slices.Collect(maps.Keys(own)),
		[]string{
			"retention", "request_timeout", "replicas", "max_ttl", "replica_lag",
			"allow_eviction",
		})
	if strings.HasPrefix(t.Addrs[0], "/") { // a socket's path
		names = append(names, "db")
	}
	slices.Sort(names)
	return names
}

// errUnknown is of a query parameter that is none.
var errUnknown = errors.New("unknown parameter")

// setting reads a query parameter that is not a text.
func (t *Target) setting(name, value, scheme string, own Settings) (err error) {
	switch name {
	case "retention":
		t.Config.Retention, err = positive(value)
	case "request_timeout":
		t.Config.RequestTimeout, err = positive(value)
	case "replicas":
		err = Count(&t.Config.Replicas)(value)
	case "max_ttl":
		t.Config.MaxTTL, err = positive(value)
	case "replica_lag":
		t.Config.ReplicaLag, err = positive(value)
	case "allow_eviction":
		t.Config.AllowEviction, err = strconv.ParseBool(value)
	case "ca", "cert", "key", "server_name":
		return invalidOption("url", name, "needs a "+scheme+"s scheme")
	case "sentinel_username", "sentinel_password":
		return invalidOption("url", name, "needs a sentinel scheme")
	default:
		set, ok := own[name]
		if !ok {
			return errUnknown
		}
		err = set(value)
	}
	if err != nil {
		return invalidOption(name, value,
			"is not valid: a duration such as 3s, true or false, or a count")
	}
	return nil
}

func positive(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err == nil && d <= 0 {
		err = strconv.ErrRange
	}
	return d, err
}

// Count is a setting that is a number from 1 to 65535.
func Count(n *int) func(string) error {
	return func(value string) error {
		v, err := strconv.ParseUint(value, 10, 16)
		if err == nil && v == 0 {
			err = strconv.ErrRange
		}
		*n = int(v)
		return err
	}
}
