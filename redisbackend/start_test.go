package redisbackend

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// covers: A2, A9
func TestStart(t *testing.T) { redistest.Starts(t, "redis") }
