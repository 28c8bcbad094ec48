package testserver

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// redisServerVar names the environment variable with the path of the server to start instead of
// redis-server from PATH.
const redisServerVar = "HOLDFAST_REDIS_SERVER"

func redisServer() string { return cmp.Or(os.Getenv(redisServerVar), "redis-server") }

// A Version is a server's product and version, as in {"redis", 7, 0} or {"valkey", 8, 1}.
type Version struct {
	Product      string // redis or valkey
	Major, Minor int
}

func (v Version) String() string { return fmt.Sprintf("%s %d.%d", v.Product, v.Major, v.Minor) }

// AtLeast reports whether v is major.minor or later. Valkey's numbers go on from Redis 7.2; where a
// later Redis has what no Valkey has, compare Product too.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// Version asks the server which version it is.
func (s *Server) Version() Version {
	s.tb.Helper()
	info := s.MustDo("INFO", "server")
	// It also says redis_version, which is the one that it is compatible with.
	if v, ok := infoVersion(info, "valkey"); ok {
		return v
	}
	v, ok := infoVersion(info, "redis")
	if !ok {
		s.tb.Fatalf("testserver: no version in INFO server:\n%s", info)
	}
	return v
}

// infoVersion reads a line such as "redis_version:7.0.15".
func infoVersion(info, product string) (v Version, ok bool) {
	_, rest, ok := strings.Cut(info, product+"_version:")
	if !ok {
		return v, false
	}
	number, _, _ := strings.Cut(rest, "\r")
	part := strings.SplitN(number, ".", 3)
	if len(part) < 2 {
		return v, false
	}
	major, errMajor := strconv.Atoi(part[0])
	minor, errMinor := strconv.Atoi(part[1])
	return Version{product, major, minor}, errMajor == nil && errMinor == nil
}

// OnlyWhere skips the test on servers of which has is false. It is the one way in which a test may
// depend on the server's version, so that a search for it finds them all; reason says what the
// other versions lack.
func OnlyWhere(t testing.TB, s *Server, has func(Version) bool, reason string) {
	t.Helper()
	if v := s.Version(); !has(v) {
		t.Skipf("server version: %s: %s", v, reason)
	}
}
