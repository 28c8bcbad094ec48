package rueidisbackend

import (
	"context"
	"net/url"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
)

func init() { store.Register("rueidis", open) }

// A target is what a URL names.
type target struct {
	store.Target
	heldAnswers bool
}

func parseURL(u *url.URL) (t target, err error) {
	t.Target, err = store.ParseURL(u, "rueidis", store.Settings{
		"held_answers": func(value string) (err error) {
			t.heldAnswers, err = strconv.ParseBool(value)
			return err
		},
	})
	return t, err
}

// open makes a backend for a URL, and asks the server whether it is fit.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	t, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	type opened struct {
		b   *Backend
		err error
	}
	done := make(chan opened, 1)
	// rueidis looks for servers without heed to ctx, for as long as the request time-out.
	go func() {
		b, err := New(t.option(), Config{
			Prefix: t.Config.Prefix, Retention: t.Config.Retention,
			RequestTimeout: t.Config.RequestTimeout,
			AllowEviction:  t.Config.AllowEviction, HeldAnswers: t.heldAnswers,
			MaxTTL: t.Config.MaxTTL, ReplicaLag: t.Config.ReplicaLag, Dialect: t.Config.Dialect,
			Replicas: t.Config.Replicas,
		})
		done <- opened{b, err}
	}()
	select {
	case o := <-done:
		if o.err == nil {
			o.err = o.b.store.Check(ctx)
			if o.err != nil {
				_ = o.b.Close()
			}
		}
		if o.err != nil {
			return nil, o.err
		}
		return o.b, nil
	case <-ctx.Done():
		go func() {
			if o := <-done; o.err == nil {
				_ = o.b.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// option is what the URL says, for rueidis.
func (t target) option() rueidis.ClientOption {
	o := rueidis.ClientOption{
		InitAddress: t.Addrs, Username: t.User, Password: t.Password, SelectDB: t.DB,
		TLSConfig:     t.TLS,
		ClientSetInfo: rueidis.DisableClientSetInfo,
	}
	switch t.Topology {
	case store.Sentinel:
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: t.Master, Username: t.SentinelUser, Password: t.SentinelPassword,
			TLSConfig: t.TLS,
		}
	case store.Standalone:
		o.ForceSingleClient = true
	}
	return o
}
