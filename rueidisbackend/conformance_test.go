package rueidisbackend_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
)

func TestConformance(t *testing.T) { redistest.Conformance(t, "rueidis") }

func TestRestarts(t *testing.T) { redistest.Restarts(t, "rueidis") }

func TestIdentity(t *testing.T) { redistest.SameServer(t, "rueidis") }

func TestPermissions(t *testing.T) { redistest.EachPermission(t, "rueidis") }

func TestUnguarded(t *testing.T) { redistest.Unguarded(t, "rueidis") }

func TestReplicas(t *testing.T) { redistest.Replicas(t, "rueidis") }

func TestNoWait(t *testing.T) { redistest.NoWait(t, "rueidis") }

func TestRefusals(t *testing.T) { redistest.Refusals(t, "rueidis") }
