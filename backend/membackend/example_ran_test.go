package membackend_test

import (
	"testing"
	"testing/synctest"
)

// What the example shows, run. It stands here because an example whose file has a test is not shown
// whole.
func TestExampleSynctest(t *testing.T) { synctest.Test(t, waitsAnHour) }
