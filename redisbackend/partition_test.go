package redisbackend_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// covers: B1, A6, B8
func TestHolderCutOff(t *testing.T) { redistest.HolderCutOff(t, "redis") }

// covers: A2, A3, C4, B7
func TestLostReplies(t *testing.T) { redistest.LostReplies(t, "redis") }
