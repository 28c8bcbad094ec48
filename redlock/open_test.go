package redlock_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

const secret = "hunter2"

// covers: I3
func TestOpenRefuses(t *testing.T) {
	node := "node=" + url.QueryEscape("mem://"+t.Name())
	for name, u := range map[string]string{
		"no nodes":            "redlock://",
		"a host":              "redlock://a:1?" + node,
		"a path":              "redlock:///a?" + node,
		"a fragment":          "redlock://?" + node + "#x",
		"unknown parameter":   "redlock://?" + node + "&nodes=1",
		"a node that is none": "redlock://?" + node + "&node=" + url.QueryEscape("x:"+secret+"@y"),
		"no scheme of ours":   "redlock://?node=" + url.QueryEscape("nosuch://u:"+secret+"@h"),
		"redlock in redlock":  "redlock://?node=" + url.QueryEscape("redlock://?node=mem://"),
		"bad timeout":         "redlock://?node-timeout=1&" + node,
		"bad drift":           "redlock://?drift=much&" + node,
		"drift too large":     "redlock://?drift=2&" + node,
		"two timeouts":        "redlock://?node-timeout=1s&node-timeout=2s&" + node,
		"too many":            "redlock://?" + strings.Repeat(node+"&", 26),
		"bad node URL":        "redlock://?" + node + "&node=" + url.QueryEscape("mem://u:"+secret+"@h"),
	} {
		b, err := backend.Open(t.Context(), u)
		if err == nil {
			_ = b.Close()
		}
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: Open = %v, want ErrInvalid", name, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error has the password: %v", name, err)
		}
	}
	_, err := backend.Open(t.Context(), "redlock://?"+node+"&"+node+"&"+node)
	if !errors.Is(err, backend.ErrUnsafe) {
		t.Errorf("Open with one store three times = %v, want ErrUnsafe", err)
	}
}

func TestOpenTakes(t *testing.T) {
	b := dial(t, memURL(t, 3)+"&node_timeout=50ms&drift=0.02")
	defer b.Close()
	if caps := b.Capabilities(); !caps.Fencing || caps.Shared || caps.Permit || caps.Queue || caps.Reentrant || caps.State || caps.MinToken {
		t.Errorf("Capabilities = %+v", caps)
	}
}
