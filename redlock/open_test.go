package redlock_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		"a user":              "redlock://u:" + secret + "@?" + node,
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
		"bad node URL": "redlock://?" + node + "&node=" +
			url.QueryEscape("mem://u:"+secret+"@h"),
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
	if caps := b.Capabilities(); !caps.Fencing || caps.Shared || caps.Permit || caps.Queue ||
		caps.Reentrant || caps.State || caps.MinToken {
		t.Errorf("Capabilities = %+v", caps)
	}
}

func init() {
	backend.Register("hangs", func(ctx context.Context, _ *url.URL) (backend.Backend, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
}

// Nodes that hang are away, once they have had their time, and no ctx of the caller's has ended
// then; unless it has.
func TestOpenWithNodesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := "redlock://?node=" + url.QueryEscape("mem://"+t.Name()) + "&node=" +
			url.QueryEscape("hangs://a") + "&node=" + url.QueryEscape("hangs://b")
		for given, limit := range map[string]time.Duration{
			"":                 2 * time.Second,
			"&node-timeout=3s": 6 * time.Second,
		} {
			began := time.Now()
			_, err := backend.Open(t.Context(), u+given)
			if took := time.Since(began); !errors.Is(err, backend.ErrUnavailable) ||
				errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "no answer within "+limit.String()) ||
				took != limit {
				t.Errorf("%s: %v after %v, want ErrUnavailable after %v", given, err, took, limit)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := backend.Open(ctx, u); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a second of time: %v, want its ctx's error", err)
		}
	})
}
