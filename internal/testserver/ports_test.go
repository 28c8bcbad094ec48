package testserver_test

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestPortsAreOfOneProcess(t *testing.T) {
	runtime.GC() // ends what nobody refers to
	runtime.GC()
	if l, err := net.Listen("tcp", testserver.BlockAddr()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen = %v, %v; want that the port is taken", l, err)
	}
}
