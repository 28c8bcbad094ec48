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
	for want, texts := range map[error][]string{
		backend.ErrForeign: {
			"WRONGTYPE Operation against a key holding the wrong kind of value",
			"@user_script: 47: WRONGTYPE Operation against a key",
		},
		backend.ErrDenied: {
			"NOPERM this user has no permissions to run the 'eval' command",
			"NOAUTH Authentication required.",
			"WRONGPASS invalid username-password pair or user is disabled.",
			"DENIED Redis is running in protected mode",
			"ERR The user executing the script can't run this command",
			"ACL failure in script: User app has no permissions to run the 'get' command",
			"@user_script: 1: The user executing the script can't run this command",
			"ERR Error running script (call to f_e41): @user_script:1: @user_script: 1: The user " +
				"executing the script can't run",
			"ERR The user executing the script can't publish to the channel mentioned " +
				"in the command",
			"ERR ACL failure in script: No permissions to access a key",
			"NOPERM User app has no permissions to run the 'hget' command",
			"EXECABORT Transaction discarded because of: NOPERM this user has no permissions",
		},
		backend.ErrUnavailable: {
			"@user_script: 1: -READONLY You can't write against a read only replica.  ",
			"OOM command not allowed when used memory > 'maxmemory'. script: 9db9, on " +
				"@user_script:1.",
			"Error running script (call to f_62c2c9): @user_script:1: @user_script: 1: -OOM " +
				"command not allowed",
			"@user_script: 47: -OOM command not allowed when used memory > 'maxmemory'.  ",
			"NOSCRIPT No matching script. Please use EVAL.",
			"READONLY You can't write against a read only replica.",
			"-READONLY You can't write against a read only replica.",
			"LOADING Redis is loading the dataset in memory",
			"MASTERDOWN Link with MASTER is down",
			"CLUSTERDOWN Hash slot not served",
			"TRYAGAIN Multiple keys request during rehashing of slot",
			"MOVED 3999 127.0.0.1:6381",
			"ASK 3999 127.0.0.1:6381",
			"OOM command not allowed when used memory > 'maxmemory'.",
			"MISCONF Redis is configured to save RDB snapshots",
			"NOREPLICAS Not enough good replicas to write.",
			"BUSY Redis is busy running a script.",
			"ERR max number of clients reached",
		},
		errors.ErrUnsupported: {
			"@user_script: 1: Unknown Redis command called from Lua script",
			"ERR Unknown command called from script",
			"ERR unknown command 'EVALSHA', with args beginning with: 'x'",
		},
		nil: {
			"@user_script: 47: something else",
			"ERR Error running script: something else",
			"WRONGTYPES are not a code",
			"OOMPH",
			"",
		},
	} {
		for _, text := range texts {
			err := ServerError(text)
			short := ServerError(strings.TrimPrefix(text, "ERR "))
			if backend.AnswerOf(short) != backend.AnswerOf(err) {
				t.Errorf("%q without ERR is %v", text, short)
			}
			if err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%q: %v, want %v", text, err, want)
			}
			if want == nil && backend.AnswerOf(err) != backend.Unknown {
				t.Errorf("%q: %v is taken for a definite answer", text, err)
			}
		}
	}
}

func TestServerErrorHidesArguments(t *testing.T) {
	err := ServerError("ERR unknown command `auth`, with args beginning with: `hunter2`")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
	for _, text := range []string{
		"NOPERM User hunter2 has no permissions",
		"ERR ACL failure in script: User hunter2 has no permissions",
	} {
		if err := ServerError(text); strings.Contains(err.Error(), "hunter2") ||
			!errors.Is(err, ErrNotPermitted) {
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
		if err := CheckMemory(info); (err == nil) != safe ||
			err != nil && !errors.Is(err, backend.ErrUnsafe) {
			t.Errorf("%q: %v, want safe=%v", info, err, safe)
		}
	}
}
