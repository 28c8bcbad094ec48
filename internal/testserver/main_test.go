package testserver_test

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		os.Exit(m.Run()) // this binary is to be killed, see TestServersDieWithTheTestBinary
	}
	goleak.VerifyTestMain(testserver.StopAfter(m))
}
