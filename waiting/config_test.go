package waiting_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/waiting"
)

func TestConfigDefaults(t *testing.T) {
	c, err := waiting.Config{}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.Fallback != waiting.DefaultFallback || c.Initial != waiting.DefaultInitial ||
		c.Max != waiting.DefaultMax ||
		c.Passes != waiting.DefaultPasses || c.PassTime != waiting.DefaultPassTime {
		t.Errorf("WithDefaults = %+v", c)
	}
	again, err := c.WithDefaults()
	if err != nil || again != c {
		t.Errorf("WithDefaults of its own result = %+v, %v", again, err)
	}
	never, err := waiting.Config{Passes: -1}.WithDefaults()
	if err != nil || never.Passes != -1 {
		t.Errorf("Passes of -1 gives %+v, %v", never, err)
	}
	slow, err := waiting.Config{Initial: 2 * time.Second}.WithDefaults()
	if err != nil || slow.Max != 2*time.Second {
		t.Errorf("an Initial above the default Max gives %+v, %v", slow, err)
	}
}

func TestConfigRefuses(t *testing.T) {
	for want, c := range map[string]waiting.Config{
		"fallback": {Fallback: -1},
		"initial":  {Initial: -1},
		"max":      {Max: -1},
		"below":    {Initial: 2, Max: 1},
		"over":     {PassTime: 24*time.Hour + 1},
		"shout":    {Mode: "shout"},
	} {
		_, err := c.WithDefaults()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("WithDefaults of %+v = %v, want an error that names %s", c, err, want)
		}
	}
}
