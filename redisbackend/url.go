package redisbackend

import (
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type kind uint8

const (
	standalone kind = iota
	sentinel
	cluster
)

// A target is what a URL names.
type target struct {
	kind                           kind
	addrs                          []string
	user, password                 string
	sentinelUser, sentinelPassword string
	master                         string
	db, poolSize                   int
	tls                            *tls.Config
	cfg                            Config
}

func (t target) secrets() []string { return []string{t.password, t.sentinelPassword} }

// parseURL reads a URL as the package comment describes it. Errors are *[backend.InvalidError] and quote nothing that may
// be secret.
func parseURL(u *url.URL) (target, error) {
	var t target
	name, secure := strings.CutPrefix(u.Scheme, "rediss")
	if !secure {
		name = strings.TrimPrefix(u.Scheme, "redis")
	}
	switch name {
	case "+sentinel":
		t.kind = sentinel
	case "+cluster":
		t.kind = cluster
	}
	if u.Fragment != "" {
		return t, invalidOption("url", "", "has a #fragment; percent-encode special characters in user and password")
	}
	for _, part := range []func(*url.URL) error{t.parseHosts, t.parseUser, t.parsePath} {
		if err := part(u); err != nil {
			return t, err
		}
	}
	err := t.parseQuery(u.Query(), secure)
	return t, err
}

func (t *target) parseHosts(u *url.URL) error {
	port := "6379"
	if t.kind == sentinel {
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
			return invalidOption("url", "", "has a host that is not host:port") // not quoted: it may be a password that lacks its @
		}
		t.addrs = append(t.addrs, net.JoinHostPort(name, number))
	}
	if t.kind == standalone && len(t.addrs) > 1 {
		return invalidOption("url", u.Host, "names several hosts; say redis+sentinel:// or redis+cluster://")
	}
	return nil
}

func (t *target) parseUser(u *url.URL) error {
	if u.User == nil {
		return nil
	}
	t.user = u.User.Username()
	t.password, _ = u.User.Password()
	if t.user != "" && t.password == "" {
		return invalidOption("url", "", "has a user without a password")
	}
	return nil
}

// parsePath reads /database, or /master/database for Sentinel.
func (t *target) parsePath(u *url.URL) error {
	path := strings.TrimPrefix(u.Path, "/")
	if t.kind == sentinel {
		var ok bool
		if t.master, path, ok = strings.Cut(path, "/"); t.master == "" || ok && path == "" {
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
	if t.kind == cluster && db != 0 {
		return invalidOption("url", u.Path, "names a database; a cluster has only 0")
	}
	t.db = int(db)
	return nil
}

func (t *target) parseQuery(q url.Values, secure bool) error {
	var ca, cert, key, serverName string
	texts := map[string]*string{"prefix": &t.cfg.Prefix}
	if secure {
		texts["ca"], texts["cert"], texts["key"], texts["server_name"] = &ca, &cert, &key, &serverName
	}
	if t.kind == sentinel {
		texts["sentinel_username"], texts["sentinel_password"] = &t.sentinelUser, &t.sentinelPassword
	}
	for name, values := range q {
		if len(values) != 1 {
			return invalidOption("url", name, "is in the query more than once")
		}
		if text, ok := texts[name]; ok {
			*text = values[0]
		} else if err := t.setting(name, values[0]); err != nil {
			return err
		}
	}
	if t.sentinelUser != "" && t.sentinelPassword == "" {
		return invalidOption("url", "", "has a sentinel_username without a sentinel_password")
	}
	if !secure {
		return nil
	}
	var err error
	t.tls, err = tlsConfig(ca, cert, key, serverName)
	return err
}

// setting reads a query parameter that is not a text.
func (t *target) setting(name, value string) (err error) {
	switch name {
	case "retention":
		t.cfg.Retention, err = positive(value)
	case "request_timeout":
		t.cfg.RequestTimeout, err = positive(value)
	case "allow_eviction":
		t.cfg.AllowEviction, err = strconv.ParseBool(value)
	case "pool_size":
		var n uint64
		if n, err = strconv.ParseUint(value, 10, 16); err == nil && n == 0 {
			err = strconv.ErrRange
		}
		t.poolSize = int(n)
	case "ca", "cert", "key", "server_name":
		return invalidOption("url", name, "needs a rediss scheme")
	case "sentinel_username", "sentinel_password":
		return invalidOption("url", name, "needs a sentinel scheme")
	default:
		return invalidOption("url", name, "is not a known query parameter")
	}
	if err != nil {
		return invalidOption(name, value, "is not valid: a duration such as 3s, true or false, or a count")
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
