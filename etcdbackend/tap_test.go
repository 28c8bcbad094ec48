package etcdbackend

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// A tap sees each request before it is sent, and each answer before the client has it. Keepalives
// are streams of one request.
type tap struct {
	before func(req any)
	after  func(reply any)
	lose   func(req any) bool // if it returns true, nothing is heard of the answer to req

	// refuse answers a request in place of the server, unless it returns nil. The client does not
	// repeat requests by itself then. It is not for watches.
	refuse func(req any) error
}

// through returns a backend on a client with a tap, and the client.
func (tp tap) through(t *testing.T, addr string, cfg Config) (*Backend, *clientv3.Client) {
	t.Helper()
	if tp.before == nil {
		tp.before = func(any) {}
	}
	if tp.after == nil {
		tp.after = func(any) {}
	}
	if tp.lose == nil {
		tp.lose = func(any) bool { return false }
	}
	interceptor := grpc.WithChainUnaryInterceptor
	if tp.refuse == nil {
		tp.refuse = func(any) error { return nil }
	} else { // in place of the client's own, which repeats requests
		interceptor = func(one ...grpc.UnaryClientInterceptor) grpc.DialOption {
			return grpc.WithUnaryInterceptor(one[0])
		}
	}
	unary := func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		next grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if err := tp.refuse(req); err != nil {
			return err
		}
		tp.before(req)
		err := next(ctx, method, req, reply, cc, opts...)
		tp.after(reply)
		if tp.lose(req) {
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		}
		return err
	}
	stream := func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		next grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := next(ctx, desc, cc, method, opts...)
		return &tappedStream{s, tp, nil}, err
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			interceptor(unary), grpc.WithChainStreamInterceptor(stream),
		},
	})
	want(t, "client", err, nil)
	t.Cleanup(func() { _ = c.Close() })
	return on(t, c, cfg), c
}

type tappedStream struct {
	grpc.ClientStream
	tap     tap
	refused error
}

func (s *tappedStream) SendMsg(m any) error {
	if err := s.tap.refuse(m); err != nil {
		s.refused = err
		return nil
	}
	s.tap.before(m)
	return s.ClientStream.SendMsg(m)
}

func (s *tappedStream) RecvMsg(m any) error {
	if s.refused != nil {
		return s.refused
	}
	err := s.ClientStream.RecvMsg(m)
	s.tap.after(m)
	return err
}

// tapped returns a backend on a client whose transactions go by see first, and the client.
func tapped(t *testing.T, addr string,
	see func(*etcdserverpb.TxnRequest),
) (*Backend, *clientv3.Client) {
	t.Helper()
	return tap{before: func(req any) {
		if txn, ok := req.(*etcdserverpb.TxnRequest); ok {
			see(txn)
		}
	}}.through(t, addr, Config{})
}
