package redisbackend_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	_ "github.com/holdfast-go/holdfast/redisbackend"
)

func TestConformance(t *testing.T) { redistest.Conformance(t, "redis") }

func TestRestarts(t *testing.T) { redistest.Restarts(t, "redis") }

func TestIdentity(t *testing.T) { redistest.SameServer(t, "redis") }

func TestUnguarded(t *testing.T) { redistest.Unguarded(t, "redis") }

func TestReplicas(t *testing.T) { redistest.Replicas(t, "redis") }

func TestNoWait(t *testing.T) { redistest.NoWait(t, "redis") }

func TestRefusals(t *testing.T) { redistest.Refusals(t, "redis") }
