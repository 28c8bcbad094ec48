package script

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// The texts are those that Redis 6, 7 and Valkey send.
//
// covers: R7, R12, R15
func TestServerError(t *testing.T) {
	for text, want := range map[string]error{
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                                  backend.ErrForeign,
		"NOPERM this user has no permissions to run the 'eval' command":                                                      backend.ErrDenied,
		"NOAUTH Authentication required.":                                                                                    backend.ErrDenied,
		"WRONGPASS invalid username-password pair or user is disabled.":                                                      backend.ErrDenied,
		"DENIED Redis is running in protected mode":                                                                          backend.ErrDenied,
		"ERR The user executing the script can't run this command":                                                           backend.ErrDenied,
		"ACL failure in script: User app has no permissions to run the 'get' command":                                        backend.ErrDenied,
		"@user_script: 1: The user executing the script can't run this command":                                              backend.ErrDenied,
		"ERR Error running script (call to f_e41): @user_script:1: @user_script: 1: The user executing the script can't run": backend.ErrDenied,
		"ERR The user executing the script can't publish to the channel mentioned in the command":                            backend.ErrDenied,
		"ERR ACL failure in script: No permissions to access a key":                                                          backend.ErrDenied,
		"NOPERM User app has no permissions to run the 'hget' command":                                                       backend.ErrDenied,
		"@user_script: 1: -READONLY You can't write against a read only replica.  ":                                          backend.ErrUnavailable,
		"OOM command not allowed when used memory > 'maxmemory'. script: 9db9, on @user_script:1.":                           backend.ErrUnavailable,
		"@user_script: 1: Unknown Redis command called from Lua script":                                                      errors.ErrUnsupported,
		"ERR Unknown command called from script":                                                                             errors.ErrUnsupported,
		"Error running script (call to f_62c2c9): @user_script:1: @user_script: 1: -OOM command not allowed":                 backend.ErrUnavailable,
		"@user_script: 47: -OOM command not allowed when used memory > 'maxmemory'.  ":                                       backend.ErrUnavailable,
		"@user_script: 47: WRONGTYPE Operation against a key":                                                                backend.ErrForeign,
		"EXECABORT Transaction discarded because of: NOPERM this user has no permissions":                                    backend.ErrDenied,
		"@user_script: 47: something else":                                                                                   nil,
		"NOSCRIPT No matching script. Please use EVAL.":                                                                      backend.ErrUnavailable,
		"READONLY You can't write against a read only replica.":                                                              backend.ErrUnavailable,
		"-READONLY You can't write against a read only replica.":                                                             backend.ErrUnavailable,
		"LOADING Redis is loading the dataset in memory":                                                                     backend.ErrUnavailable,
		"MASTERDOWN Link with MASTER is down":                                                                                backend.ErrUnavailable,
		"CLUSTERDOWN Hash slot not served":                                                                                   backend.ErrUnavailable,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                            backend.ErrUnavailable,
		"MOVED 3999 127.0.0.1:6381":                                                                                          backend.ErrUnavailable,
		"ASK 3999 127.0.0.1:6381":                                                                                            backend.ErrUnavailable,
		"OOM command not allowed when used memory > 'maxmemory'.":                                                            backend.ErrUnavailable,
		"MISCONF Redis is configured to save RDB snapshots":                                                                  backend.ErrUnavailable,
		"NOREPLICAS Not enough good replicas to write.":                                                                      backend.ErrUnavailable,
		"BUSY Redis is busy running a script.":                                                                               backend.ErrUnavailable,
		"ERR max number of clients reached":                                                                                  backend.ErrUnavailable,
		"ERR unknown command 'EVALSHA', with args beginning with: 'x'":                                                       errors.ErrUnsupported,
		"ERR Error running script: something else":                                                                           nil,
		"WRONGTYPES are not a code":                                                                                          nil,
		"OOMPH":                                                                                                              nil,
		"":                                                                                                                   nil,
	} {
		if short := ServerError(strings.TrimPrefix(text, "ERR ")); backend.AnswerOf(short) != backend.AnswerOf(ServerError(text)) {
			t.Errorf("%q without ERR is %v", text, short)
		}
		err := ServerError(text)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
		if want == nil && backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%q: %v is taken for a definite answer", text, err)
		}
	}
}

func TestServerErrorHidesArguments(t *testing.T) {
	err := ServerError("ERR unknown command `auth`, with args beginning with: `hunter2`")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"NOPERM User hunter2 has no permissions", "ERR ACL failure in script: User hunter2 has no permissions"} {
		if err := ServerError(text); strings.Contains(err.Error(), "hunter2") || !errors.Is(err, ErrNotPermitted) {
			t.Errorf("%v", err)
		}
	}
	if n := len(ServerError("ERR " + strings.Repeat("ä", 10_000)).Error()); n > 300 {
		t.Errorf("an error of %d bytes", n)
	}
}

// covers: R5
func TestCheckMemory(t *testing.T) {
	for info, safe := range map[string]bool{
		"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n": true,
		"maxmemory:100\r\nmaxmemory_policy:noeviction\r\n":           true,
		"maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n":            true,
		"maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n":          false,
		"maxmemory:100\r\nmaxmemory_policy:volatile-ttl\r\n":         false,
		"maxmemory_human:0\r\nmaxmemory_policy_x:noeviction\r\n":     false,
		"maxmemory:100\n": false,
		"":                false,
		"maxmemory:100\nmaxmemory_policy:volatile-lru\nmaxmemory_eviction_tenacity:10\n": false,
	} {
		if err := CheckMemory(info); (err == nil) != safe || err != nil && !errors.Is(err, backend.ErrUnsafe) {
			t.Errorf("%q: %v, want safe=%v", info, err, safe)
		}
	}
}
